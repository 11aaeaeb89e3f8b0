"""What the tools need of an ELF file: the names that a 64-bit little-endian shared library defines for others."""

import struct

STT_OBJECT, STT_FUNC, STT_GNU_IFUNC = 1, 2, 10
_SHT_DYNSYM = 11


class ElfError(Exception):
    """The file is not a 64-bit little-endian ELF file, or ends early."""


def exports(path):
    """Name -> symbol type (STT_*) of what `path` defines, global or weak, in its dynamic symbol table."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ElfError(f"{path}: not a 64-bit little-endian ELF file")
    try:
        return dict(_symbols(data))
    except (struct.error, IndexError, ValueError) as error:
        raise ElfError(f"{path}: damaged ELF file ({error})") from error


def _symbols(data):
    (section_headers,) = struct.unpack_from("<Q", data, 0x28)
    size_of_header, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_headers + i * size_of_header) for i in range(count)]
    for _, kind, _, _, offset, size, link, _, _, entry_size in sections:
        if kind != _SHT_DYNSYM:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, entry_size):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section and info >> 4 in (1, 2) and info & 15 in (STT_OBJECT, STT_FUNC, STT_GNU_IFUNC):
                start = strings + name
                yield data[start : data.index(b"\0", start)].decode(), info & 15
