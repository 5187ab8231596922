import pytest
import torch

from wessl import ConvNet, Encoder


def test_it_is_an_encoder_whose_first_token_is_the_mean_of_the_others():
    net = ConvNet((8, 16), in_channels=1).eval()
    tokens = net(torch.randn(3, 1, 12, 20))
    assert isinstance(net, Encoder)
    assert tokens.shape == (3, 1 + 6 * 10, 16)
    torch.testing.assert_close(tokens[:, 0], tokens[:, 1:].mean(1))


def test_cls_is_the_first_token():
    net, x = ConvNet((8, 16, 24)), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(net.cls(x), net(x)[:, 0])


def test_a_picture_does_not_depend_on_its_batch_in_training_either():
    net, x = ConvNet((8, 16)).train(), torch.randn(4, 3, 16, 16)
    torch.testing.assert_close(net.cls(x)[:1], net.cls(x[:1]))


def test_each_width_but_the_first_halves_the_resolution():
    x = torch.randn(1, 3, 16, 16)
    assert [ConvNet((8,) * n)(x).shape[1] - 1 for n in (1, 2, 3)] == [256, 64, 16]


def test_an_object_without_cls_is_no_encoder():
    assert not isinstance(torch.nn.Linear(2, 2), Encoder)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match=r"expected \(b, 3, h, w\), got \(1, 1, 8, 8\)"):
        ConvNet()(torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match="at least one block"):
        ConvNet(())
