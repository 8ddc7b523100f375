"""Devices that compute: this process's cores, and NVIDIA GPUs.

`cuda.py` is the only file that names `torch.cuda`; `places.py` is what measuring and running ask of
a device, whichever it is; `handing.py` brings tensors from one device to another.
"""
