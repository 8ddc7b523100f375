"""Where a rank of a run gets its weights: each makes only its own, never the whole model.

    weights = weights_of(source, executable, module, given)       in the process that starts ranks
    with hand_over(weights, names) as handed:                     a rank's own
        start(handed.document, pass_fds=handed.descriptors)
    from_document(document).load(names)                           in the rank

`held.py`, `shared.py`, `files.py` and `fresh.py` are a kind each, `joined.py` several as one;
`listings.py` and `matching.py` say which bytes of files a weight is.
"""

from placewright.runtime.weights.base import Weights, bytes_of
from placewright.runtime.weights.choosing import weights_of
from placewright.runtime.weights.files import FileWeights
from placewright.runtime.weights.fresh import FreshWeights
from placewright.runtime.weights.handing import HandedOver, from_document, hand_over
from placewright.runtime.weights.held import HeldWeights
from placewright.runtime.weights.joined import JoinedWeights
from placewright.runtime.weights.shared import SharedWeights, share

__all__ = [
    "FileWeights",
    "FreshWeights",
    "HandedOver",
    "HeldWeights",
    "JoinedWeights",
    "SharedWeights",
    "Weights",
    "bytes_of",
    "from_document",
    "hand_over",
    "share",
    "weights_of",
]
