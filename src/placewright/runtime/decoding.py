"""Making tokens: how often a program that decodes is called, with which prompt, and what it gave.

For programs of ``hf:CONFIG?phase=generate`` (see `importers.torch.generation`), which make a token
of each sequence a call. A call that reads the last token of a prompt gives the first new token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError
from placewright.importers.torch.generation import POSITION, PROMPT, PROMPT_LENGTH
from placewright.runtime.results import RunReport

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.runtime.run_options import RunOptions
    from placewright.runtime.values import Values

TOKENS, LOGITS = 0, 1
"""Among the results of a program that decodes."""


@dataclass(frozen=True)
class Decoding:
    """So many new `tokens` for each sequence, after its prompt.

    `prompts` are token ids: one for each sequence of the batch, one for all of them, or none: then
    all begin with the source's own token.
    """

    tokens: int
    prompts: Sequence[Sequence[int]] = ()

    def calls(self, lengths: Sequence[int]) -> int:
        """Until the sequence with the longest prompt has all its tokens; 2 at least are made."""
        return max(2, max(lengths) + self.tokens - 1)


def prepared(program: Executable, values: Values, options: RunOptions) -> tuple[RunOptions, Values]:
    """What a program is called with, and how often, so that it makes the tokens asked for.

    OptionError where it makes none, or has no room for as many.
    """
    if POSITION not in program.updates:
        if options.decoding is not None:
            raise OptionError(
                f"{program.name} makes no tokens; plan hf:CONFIG?phase=generate&context=TOKENS"
            )
        return options, values
    batch, context = values.inputs[PROMPT].shape
    if options.decoding is None:
        calls = 1 + options.repeats + options.clocked
        if calls > context:
            raise OptionError(
                f"{program.name}: {calls} calls make {calls} tokens, and context={context} has no "
                "room for them; give fewer repeats, or a larger context"
            )
        return options, values
    lengths = [1] * batch
    if options.decoding.prompts:
        prompts = _prompts(program, options.decoding.prompts, batch)
        lengths = [len(each) for each in prompts]
        values = _with_prompts(values, prompts)
    _check_room(program, options.decoding, max(lengths), context)
    calls = options.decoding.calls(lengths)
    clocked = min(options.clocked, context - calls)
    return replace(options, repeats=calls - 1, clocked=clocked), values


def with_tokens(report: RunReport, values: Values, options: RunOptions) -> RunReport:
    """The report with the tokens that were made, if any were asked for."""
    if options.decoding is None:
        return report
    lengths = values.inputs[PROMPT_LENGTH].tolist()
    count = options.decoding.tokens
    tokens = _made(report.results, lengths, count)
    expected = _made(report.single_process_results, lengths, count)
    return replace(report, tokens=tokens, same_tokens=tokens == expected)


def _made(
    results: Sequence[Sequence[Any]], lengths: Sequence[int], count: int
) -> tuple[tuple[int, ...], ...]:
    """`[sequence][token]`: those after each sequence's prompt."""
    calls = [call[TOKENS].tolist() for call in results]
    return tuple(
        tuple(int(call[number]) for call in calls[length - 1 : length - 1 + count])
        for number, length in enumerate(lengths)
    )


def _prompts(
    program: Executable, given: Sequence[Sequence[int]], batch: int
) -> list[Sequence[int]]:
    """One for each sequence; OptionError for another number, or ids that are none."""
    if len(given) not in (1, batch):
        raise OptionError(
            f"{program.name}: {len(given)} prompts are given for a batch of {batch}; give one for "
            "all, or one for each"
        )
    logits = program.outputs[program.results[LOGITS]]
    words = int(logits.meta["val"].shape[-1])
    for prompt in given:
        if not prompt:
            raise OptionError(f"{program.name}: a prompt is empty; give token ids, as in 1,2,3")
        wrong = [each for each in prompt if not 0 <= each < words]
        if wrong:
            raise OptionError(
                f"{program.name}: the prompt has token {wrong[0]}, and the model has tokens 0 to "
                f"{words - 1}"
            )
    return list(given) * (batch if len(given) == 1 else 1)


def _with_prompts(values: Values, prompts: Sequence[Sequence[int]]) -> Values:
    import torch

    prompt = torch.zeros_like(values.inputs[PROMPT])
    for row, tokens in enumerate(prompts):
        prompt[row, : len(tokens)] = torch.tensor(tokens)[: prompt.shape[1]]
    lengths = torch.tensor([len(tokens) for tokens in prompts])
    return replace(values, inputs={**values.inputs, PROMPT: prompt, PROMPT_LENGTH: lengths})


def _check_room(program: Executable, decoding: Decoding, longest: int, context: int) -> None:
    if decoding.tokens < 1:
        raise OptionError(f"tokens is {decoding.tokens}; it must be at least 1")
    needed = longest + decoding.tokens
    if needed > context:
        raise OptionError(
            f"{program.name}: a prompt of {longest} and {decoding.tokens} new tokens are {needed}, "
            f"and context={context} has no room for them; plan with context={needed}"
        )
