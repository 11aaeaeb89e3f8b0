"""Training programs whose memory bench_pool's traces show. They need PyTorch and torchvision, and no data.

Each is a function that builds the program on the GPU and returns one that does a step and returns its loss, a tensor.
"""

import random

import torch
import torch.nn.functional as functional


def resnet():
    """ResNet-50 in bf16, batches of 64 pictures: the same sizes in every step."""
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator(device="cuda").manual_seed(1)

    def step():
        pictures = torch.randn(64, 3, 224, 224, device="cuda", generator=generator)
        labels = torch.randint(1000, (64,), device="cuda", generator=generator)
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(pictures.to(memory_format=torch.channels_last)), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def transformer():
    """An encoder of BERT's base size, batches of 32 texts of other lengths in every step, AdamW."""
    width, layers, words = 768, 12, 30522

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(words, width)
            self.places = torch.nn.Embedding(512, width)
            layer = torch.nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.1, activation="gelu",
                                                     batch_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, words)

        def forward(self, text):
            places = torch.arange(text.shape[1], device=text.device)
            return self.head(self.layers(self.words(text) + self.places(places)))

    model = Encoder().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator(device="cuda").manual_seed(1)
    lengths = random.Random(1)

    def step():
        text = torch.randint(words, (32, lengths.randint(48, 320)), device="cuda", generator=generator)
        with torch.autocast("cuda", torch.bfloat16):
            guess = model(text)
            loss = functional.cross_entropy(guess.flatten(0, 1).float(), text.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def detector():
    """RetinaNet, batches of four pictures of changing sizes and numbers of boxes; the next one on its own stream."""
    import torchvision

    model = torchvision.models.detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=81, min_size=(384, 448, 512, 576, 640), max_size=900).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    sizes = random.Random(1)
    copies = torch.cuda.Stream()

    def load():
        """A batch, copied on the stream for copies. It is kept until the step that uses it is over."""
        pictures, targets = [], []
        generator = torch.Generator().manual_seed(sizes.randrange(1 << 30))
        for _ in range(4):
            height, width = sizes.randrange(360, 641, 8), sizes.randrange(480, 801, 8)
            room = torch.tensor([width - 80, height - 80])
            corners = torch.rand(sizes.randint(1, 20), 2, generator=generator) * room
            extents = torch.rand(len(corners), 2, generator=generator) * 60 + 16
            pictures.append(torch.rand(3, height, width, generator=generator).pin_memory())
            targets.append({"boxes": torch.cat([corners, corners + extents], 1).pin_memory(),
                            "labels": torch.randint(1, 81, (len(corners),), generator=generator).pin_memory()})

        def copy(value):
            return value.to("cuda", non_blocking=True)

        with torch.cuda.stream(copies):
            return ([copy(picture) for picture in pictures],
                    [{name: copy(value) for name, value in target.items()} for target in targets])

    batch = [load()]

    def step():
        torch.cuda.current_stream().wait_stream(copies)
        pictures, targets = batch[0]
        loss = sum(model(pictures, targets).values())
        following = load()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        copies.wait_stream(torch.cuda.current_stream())  # before this batch's memory is used again there
        batch[0] = following
        return loss.detach()

    return step


PROGRAMS = {"resnet": resnet, "transformer": transformer, "detector": detector}


def make_deterministic():
    """So that two runs have the same losses, as far as PyTorch has such kernels."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False  # it would choose by the memory that is free
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would make allocating slow
