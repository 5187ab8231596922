import pytest
import torch
import torch.nn.functional as F

from wessl import ConvNet, Encoder


def test_it_is_an_encoder_of_cells_and_a_reading_of_them():
    net = ConvNet((8, 16), in_channels=1).eval()
    tokens = net(torch.randn(3, 1, 12, 20))
    assert isinstance(net, Encoder)
    assert tokens.shape == (3, 1 + 6 * 10, 16)
    cells = tokens[:, 1:].transpose(1, 2).unflatten(2, (6, 10))
    torch.testing.assert_close(tokens[:, 0], net.read(F.adaptive_avg_pool2d(cells, 4).flatten(1)))


def test_cls_is_the_first_token():
    net, x = ConvNet((8, 16, 24)), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(net.cls(x), net(x)[:, 0])


def test_a_picture_does_not_depend_on_its_batch_in_training_either():
    net, x = ConvNet((8, 16)).train(), torch.randn(4, 3, 16, 16)
    torch.testing.assert_close(net.cls(x)[:1], net.cls(x[:1]))


def test_the_stem_and_each_block_but_the_first_halve_the_resolution():
    x = torch.randn(1, 3, 32, 32)
    assert [ConvNet((8,) * n)(x).shape[1] - 1 for n in (2, 3, 4)] == [16**2, 8**2, 4**2]


def test_where_a_stroke_stands_matters():
    net, x = ConvNet((8, 16)).eval(), torch.zeros(1, 3, 16, 16)
    x[..., 2:6, 2:6] = 1
    assert not torch.allclose(net.cls(x), net.cls(x.roll((8, 8), (2, 3))), atol=1e-3)


def test_an_object_without_cls_is_no_encoder():
    assert not isinstance(torch.nn.Linear(2, 2), Encoder)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match=r"expected \(b, 3, h, w\), got \(1, 1, 8, 8\)"):
        ConvNet()(torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match=r"at least one block, got \(8,\)"):
        ConvNet((8,))
