"""The words of a command line as bash hands them out at TAB, put together again."""

from __future__ import annotations

from collections.abc import MutableMapping

INSTRUCTION = "_PLACEWRIGHT_COMPLETE"  # set by the shell's script
DONE = "_PLACEWRIGHT_COMPLETE_DONE"  # of the current word, what bash does not replace


def mend_words(environment: MutableMapping[str, str]) -> None:
    """Join the words that bash parts at ``:`` and ``=``, if it asks.

    ``zoo:gpt2`` comes as three words, of which the last is completed and replaced. Here the
    current word keeps that last part, and what stands before it is noted.
    """
    environment.pop(DONE, None)
    if environment.get(INSTRUCTION) != "complete_bash":
        return
    parts = environment.get("COMP_WORDS", "").split("\n")
    current = int(environment.get("COMP_CWORD", "0"))
    if not 0 < current < len(parts):
        return
    words, done = _joined(parts[: current + 1])
    environment["COMP_WORDS"] = "\n".join(words)
    environment["COMP_CWORD"] = str(len(words) - 1)
    environment[DONE] = done


def _joined(parts: list[str]) -> tuple[list[str], str]:
    """Whole words, of the last one only its last part, and what of it stands before that."""
    words: list[str] = []
    done, joins = "", False
    for part in parts:
        parts_words = bool(part) and set(part) <= {":", "="}
        if parts_words and words and words[-1].startswith("--"):
            words.append("")  # a long option and its value
            done, joins = "", True
        elif words and (parts_words or joins):
            done = words[-1] + (part if parts_words else "")
            words[-1] += part
            joins = parts_words
        else:
            words.append(part)
            done, joins = "", False
    return [*words[:-1], words[-1].removeprefix(done)], done
