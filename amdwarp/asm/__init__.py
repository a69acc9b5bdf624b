"""Reader of AMDGCN assembly text."""

from amdwarp.asm.program import Argument as Argument
from amdwarp.asm.program import Immediate as Immediate
from amdwarp.asm.program import Instruction as Instruction
from amdwarp.asm.program import KernelDescriptor as KernelDescriptor
from amdwarp.asm.program import Metadata as Metadata
from amdwarp.asm.program import Operand as Operand
from amdwarp.asm.program import Program as Program
from amdwarp.asm.program import Register as Register
from amdwarp.asm.program import SourceLocation as SourceLocation
from amdwarp.asm.program import Symbol as Symbol
from amdwarp.asm.reader import parse as parse
from amdwarp.asm.reader import parse_instruction as parse_instruction
