"""Words for keys: an adjective and a noun, joined by a hyphen ("amber-anchor"). There are 8,192 keys."""

from __future__ import annotations

_ADJECTIVES = """
amber ample ancient autumn blue bold brave brief bright broad calm clean clear clever cold crisp curved daring deep
distant dry eager early easy empty fair famous fast fine firm fresh gentle glad golden grand green happy heavy hidden
hollow honest humble keen kind large late light little lively loud lucky merry mild modest narrow noble north quiet
rapid round silver simple smooth sunny
"""
_NOUNS = """
acorn anchor apple arrow badge barn basket beacon bell bench blanket boat bottle branch bread brick bridge brook brush
bucket button cabin camel candle canyon carpet castle cedar chair chalk cherry circle clock cloud coat comet copper
coral cottage cradle crane crown curtain daisy desk door dragon drum eagle engine falcon feather fence ferry field
finger flag flame flute forest fountain fox garden gate glove goose guitar hammer harbor harvest hat helmet hill horn
horse island jacket jar jewel journal kettle key kite ladder lake lamp lantern leaf lemon letter lion magnet maple
marble meadow mirror moon mountain needle nest oak ocean orange orchard otter owl paddle palace paper parrot pearl
pencil piano pigeon pillow planet plum pocket pond rabbit ribbon river saddle ship spoon table tiger tower
"""
ADJECTIVES, NOUNS = tuple(_ADJECTIVES.split()), tuple(_NOUNS.split())
