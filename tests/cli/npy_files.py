""".npy files without NumPy."""
import ast
import struct

FORMATS = {"<f4": "f", "<i8": "q", "|u1": "B", "<f2": "e"}


def write(path, shape, values, descr="<f4"):
    header = repr({"descr": descr, "fortran_order": False, "shape": tuple(shape)})
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}{FORMATS[descr]}", *values))


def parse(data):
    """Shape and values."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    assert (10 + length) % 64 == 0
    header = ast.literal_eval(data[10:10 + length].decode())
    body = data[10 + length:]
    code = FORMATS[header["descr"]]
    return header["shape"], list(struct.unpack(f"<{len(body) // struct.calcsize(code)}{code}", body))


def read(path):
    with open(path, "rb") as file:
        return parse(file.read())
