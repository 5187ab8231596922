"""The ``auto`` recipe: sizes a method to the pictures, the device and the time, and says why.

``small`` is the engine; every setting it chooses comes back as a ``Choice`` with its reason. The
paper trained on 1.28 million pictures; what to change for few of them was learnt by trials on
held-out pictures (``docs/LOG.md``), one seed each where no number is told:

- A teacher that averages a three-hundredth of the run, not the paper's 250 steps: k-NN 58.0 instead
  of 51.4 % on Imagenette (128 pixels, 50 epochs; 10 steps against 100).
- The paper's learning rate, 0.001 x batch / 512, also for a batch of 128: 58.0 against 56.1 for
  twice that and less for six times.
- Attention that starts as if trained (``encoder/mimetic.py``): 61.2 against 57.8 % there, in 40
  epochs.
- Blur in proportion to the views: k-NN 25.7 instead of 24.3 % on Tiny ImageNet's 64 pixels.
- MSN*: half as many codes as pictures in a step. On Tiny ImageNet in 30 epochs, 64 instead of 256,
  k-NN 25.7 instead of 18.2 %, where the 256 collapsed to 5.
- Few pictures: ``auto``'s sixteen heads share one codebook. On digits that gains 2.4 points in
  1-shot over one head (five seeds), where sixteen whole heads gain nothing; on MNIST's digits,
  which had no part in that choice, 2.9 (five seeds); on Tiny ImageNet's 64 pixels, a ViT-T and 100
  epochs, 0.8, whole heads 0.2 (three seeds). Digits and Tiny ImageNet were judged by their test
  pictures. On Imagenette (160 pixels, ViT-S/16, 200 epochs, three seeds) -0.1 in 1-shot and 0.8 in
  13-shot, both not resolved; after 70 epochs, on a fifth held out, 1.1 in 1-shot and -0.6 in k-NN
  in batches of 128, whole heads -0.5 in 1-shot. With 50,000 pictures and more whole heads stay, as
  in the paper.
- Views of 224 pixels: at 160, half the operations, one head has half a point of k-NN and one in
  1-shot less on Imagenette (200 epochs; three seeds, at 224 one: not resolved).
  ``encoder.image_size`` chooses others, and the rest follows.
- A batch of 128: k-NN 74.9 % there, 72.8 with 64 at the same rate, 71.5 with 256 at twice it.
- On a CPU small views of the small convolutional network, with linear heads: 1,000 photographs of
  Imagenette in 65 epochs, 24 minutes of one core, k-NN 36.8 and 13-shot 31.1 % (raw pixels 22.4
  and 25.3). In the same time a ViT-T/8 of 6 blocks had 29.3 and 26.5; half of it gave a ViT-T/16
  with views of 224 pixels nine epochs, 27.2 and 21.6. Judged by test pictures.
- Drawings (digits): linear heads, a milder teacher, no crops.
"""

from wessl.auto.choice import Choice, DataFacts
from wessl.auto.length import (
    FEW_STEPS,
    START_SECONDS,
    budget_for,
    duration,
    enough_budget,
    flops_per_second,
    seconds_per_image,
    speed_beside_known,
)
from wessl.auto.sizes import NOT_SET, OF_TRANSFORMERS, small

__all__ = [
    "FEW_STEPS",
    "NOT_SET",
    "OF_TRANSFORMERS",
    "START_SECONDS",
    "Choice",
    "DataFacts",
    "budget_for",
    "duration",
    "enough_budget",
    "flops_per_second",
    "seconds_per_image",
    "small",
    "speed_beside_known",
]
