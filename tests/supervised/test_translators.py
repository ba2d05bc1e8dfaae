"""Networks that translate, held to their equations, one sentence and one step at a time."""

import pytest
import torch

from rims_rl.core import make_core
from rims_rl.supervised.data.subwords import BEGIN, END, PAD, Sentences
from rims_rl.supervised.translators import RecurrentTranslator, TransformerTranslator

SENTENCES = Sentences([[4, 5, 6, 7], [8, 9], [5], [9, 8, 7, 6, 5, 4]])
ANSWERS = Sentences([[10, 4], [5, 6, 7], [8], [9, 10, 11, 4, 5]])
SIZES = {"source": 12, "targets": {"de": 14, "fr": 16}, "dropout": 0.0}


def translator(core, seed=0):
    torch.manual_seed(seed)
    if core == "transformer":
        made = TransformerTranslator(8, width=8, num_layers=2, options={"heads": 2}, **SIZES)
    else:
        made = RecurrentTranslator(lambda size: make_core(core, size, 24, 6, 4, 1), 8, **SIZES)
    for parameter in made.parameters():  # so that everything matters, biases too
        torch.nn.init.normal_(parameter, std=0.2)
    return made.double().eval()


def literally(network, source, said, language):
    """The docstring's equations for one sentence, in loops."""
    width = network.embedding.embedding_dim
    decoder = network.decoders[language]
    state, read, logits = None, [], []
    for piece in source:
        x = network.embedding.weight[piece] * width**0.5
        output, state = network.core(x.view(1, 1, -1), state)
        read.append(output[0, 0])
    for piece in said:
        x = network.spoken[language].weight[piece] * width**0.5
        output, state = decoder.core(x.view(1, 1, -1), state)
        h = output[0, 0]
        scores = torch.stack([(decoder.align.weight @ h) @ e for e in read])
        weights = scores.exp() / scores.exp().sum()
        context = sum(weight * e for weight, e in zip(weights, read, strict=True))
        wanted = torch.tanh(decoder.combine.weight @ torch.cat([h, context]) + decoder.combine.bias)
        vectors = network.spoken[language].weight
        logits.append(torch.stack([vector @ wanted for vector in vectors]) + network.bias[language])
    return torch.stack(logits)


@pytest.mark.parametrize("core", ["rims", "rims-robust", "lstm", "gru"])
@pytest.mark.parametrize("language", ["de", "fr"])
def test_a_padded_batch_is_each_sentence_by_its_equations(core, language):
    network = translator(core)
    rows = range(len(SENTENCES))
    source, target = SENTENCES.sources(rows), ANSWERS.targets(rows)
    with torch.no_grad():
        found = network(source, target[:-1], language)
        for row in rows:
            said = [BEGIN, *ANSWERS[row]]
            wanted = literally(network, [*SENTENCES[row], END], said, language)
            torch.testing.assert_close(found[: len(said), row], wanted, rtol=1e-8, atol=1e-8)


def test_a_transformer_reads_a_padded_sentence_as_it_reads_it_alone():
    network = translator("transformer")
    rows = range(len(SENTENCES))
    with torch.no_grad():
        found = network(SENTENCES.sources(rows), ANSWERS.targets(rows)[:-1], "de")
        for row in rows:
            alone = network(SENTENCES.sources([row]), ANSWERS.targets([row])[:-1], "de")
            torch.testing.assert_close(found[: len(alone), row], alone[:, 0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("core", ["rims", "lstm", "transformer"])
def test_nobody_sees_what_is_to_be_said_next(core):
    network = translator(core)
    source, said = SENTENCES.sources([0, 3]), ANSWERS.targets([0, 3])[:-1]
    changed = said.clone()
    changed[2:] = 11
    with torch.no_grad():
        before, after = network(source, said, "de"), network(source, changed, "de")
    torch.testing.assert_close(before[:2], after[:2], rtol=0, atol=1e-12)
    assert not torch.allclose(before[2:], after[2:])


@pytest.mark.parametrize("core", ["rims", "gru", "transformer"])
def test_a_translation_is_the_likeliest_piece_after_what_was_said(core):
    network = translator(core, seed=1)
    source = SENTENCES.sources(range(4))
    with torch.no_grad():
        said = network.translate(source, "fr", 9)
        again = network(source, torch.cat([torch.full_like(source[:1], BEGIN), said])[:-1], "fr").argmax(-1)
    assert len(said) <= 9
    for row in range(4):
        sentence = said[:, row].tolist()
        length = sentence.index(END) + 1 if END in sentence else len(sentence)
        assert sentence[:length] == again[:length, row].tolist() and set(sentence[length:]) <= {PAD}


def test_decoders_are_their_own_and_the_encoder_is_shared():
    network = translator("rims").train()
    source = SENTENCES.sources([0])
    network(source, ANSWERS.targets([0])[:-1], "de").sum().backward()
    moved = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert any(name.startswith("core.") for name in moved) and any(name.startswith("decoders.de.") for name in moved)
    assert not any("fr" in name.split(".") for name in moved)


@pytest.mark.parametrize(
    ("width", "options", "words"),
    [
        (8, {"num_heads": 2}, "no option 'num_heads' .value 2.*its options are heads, feed"),
        (9, {}, "multiple of heads=4"),
    ],
)
def test_a_transformer_that_cannot_be_made_is_one_sentence(width, options, words):
    with pytest.raises(ValueError, match=words):
        TransformerTranslator(8, width=width, num_layers=1, options=options, **SIZES)
