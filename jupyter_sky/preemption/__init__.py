from .checkpoints import *
from .models import *
