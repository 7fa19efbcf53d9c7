"""The differentiable operations, by family; `Tensor` gets its operators and methods when this package is imported."""

from snncell.ops import methods as methods
from snncell.ops.control import (
    assign as assign,
)
from snncell.ops.control import (
    assign_add as assign_add,
)
from snncell.ops.control import (
    scan as scan,
)
from snncell.ops.conv import (
    avg_pool1d as avg_pool1d,
)
from snncell.ops.conv import (
    avg_pool2d as avg_pool2d,
)
from snncell.ops.conv import (
    conv as conv,
)
from snncell.ops.conv import (
    conv1d as conv1d,
)
from snncell.ops.conv import (
    conv2d as conv2d,
)
from snncell.ops.conv import (
    max_pool1d as max_pool1d,
)
from snncell.ops.conv import (
    max_pool2d as max_pool2d,
)
from snncell.ops.elementwise import (
    abs as abs,
)
from snncell.ops.elementwise import (
    add as add,
)
from snncell.ops.elementwise import (
    atan as atan,
)
from snncell.ops.elementwise import (
    bitwise_and as bitwise_and,
)
from snncell.ops.elementwise import (
    bitwise_or as bitwise_or,
)
from snncell.ops.elementwise import (
    bitwise_xor as bitwise_xor,
)
from snncell.ops.elementwise import (
    cast as cast,
)
from snncell.ops.elementwise import (
    ceil as ceil,
)
from snncell.ops.elementwise import (
    clip as clip,
)
from snncell.ops.elementwise import (
    conj as conj,
)
from snncell.ops.elementwise import (
    cos as cos,
)
from snncell.ops.elementwise import (
    div as div,
)
from snncell.ops.elementwise import (
    divide as divide,
)
from snncell.ops.elementwise import (
    eq as eq,
)
from snncell.ops.elementwise import (
    equal as equal,
)
from snncell.ops.elementwise import (
    erf as erf,
)
from snncell.ops.elementwise import (
    exp as exp,
)
from snncell.ops.elementwise import (
    expm1 as expm1,
)
from snncell.ops.elementwise import (
    floor as floor,
)
from snncell.ops.elementwise import (
    floor_div as floor_div,
)
from snncell.ops.elementwise import (
    ge as ge,
)
from snncell.ops.elementwise import (
    gelu as gelu,
)
from snncell.ops.elementwise import (
    greater as greater,
)
from snncell.ops.elementwise import (
    greater_equal as greater_equal,
)
from snncell.ops.elementwise import (
    gt as gt,
)
from snncell.ops.elementwise import (
    isfinite as isfinite,
)
from snncell.ops.elementwise import (
    isnan as isnan,
)
from snncell.ops.elementwise import (
    le as le,
)
from snncell.ops.elementwise import (
    leaky_relu as leaky_relu,
)
from snncell.ops.elementwise import (
    less as less,
)
from snncell.ops.elementwise import (
    less_equal as less_equal,
)
from snncell.ops.elementwise import (
    log as log,
)
from snncell.ops.elementwise import (
    log1p as log1p,
)
from snncell.ops.elementwise import (
    logical_and as logical_and,
)
from snncell.ops.elementwise import (
    logical_not as logical_not,
)
from snncell.ops.elementwise import (
    logical_or as logical_or,
)
from snncell.ops.elementwise import (
    logical_xor as logical_xor,
)
from snncell.ops.elementwise import (
    lt as lt,
)
from snncell.ops.elementwise import (
    maximum as maximum,
)
from snncell.ops.elementwise import (
    minimum as minimum,
)
from snncell.ops.elementwise import (
    mod as mod,
)
from snncell.ops.elementwise import (
    mul as mul,
)
from snncell.ops.elementwise import (
    multiply as multiply,
)
from snncell.ops.elementwise import (
    ne as ne,
)
from snncell.ops.elementwise import (
    neg as neg,
)
from snncell.ops.elementwise import (
    not_equal as not_equal,
)
from snncell.ops.elementwise import (
    pow as pow,
)
from snncell.ops.elementwise import (
    relu as relu,
)
from snncell.ops.elementwise import (
    relu6 as relu6,
)
from snncell.ops.elementwise import (
    round as round,
)
from snncell.ops.elementwise import (
    rsqrt as rsqrt,
)
from snncell.ops.elementwise import (
    select as select,
)
from snncell.ops.elementwise import (
    sigmoid as sigmoid,
)
from snncell.ops.elementwise import (
    sign as sign,
)
from snncell.ops.elementwise import (
    sin as sin,
)
from snncell.ops.elementwise import (
    softplus as softplus,
)
from snncell.ops.elementwise import (
    sqrt as sqrt,
)
from snncell.ops.elementwise import (
    square as square,
)
from snncell.ops.elementwise import (
    sub as sub,
)
from snncell.ops.elementwise import (
    subtract as subtract,
)
from snncell.ops.elementwise import (
    tanh as tanh,
)
from snncell.ops.elementwise import (
    where as where,
)
from snncell.ops.fft import (
    fft as fft,
)
from snncell.ops.fft import (
    ifft as ifft,
)
from snncell.ops.fft import (
    imag as imag,
)
from snncell.ops.fft import (
    irfft as irfft,
)
from snncell.ops.fft import (
    real as real,
)
from snncell.ops.fft import (
    rfft as rfft,
)
from snncell.ops.linalg import (
    bmm as bmm,
)
from snncell.ops.linalg import (
    einsum as einsum,
)
from snncell.ops.linalg import (
    matmul as matmul,
)
from snncell.ops.primitives import (
    Abs as Abs,
)
from snncell.ops.primitives import (
    Add as Add,
)
from snncell.ops.primitives import (
    Argmax as Argmax,
)
from snncell.ops.primitives import (
    Assign as Assign,
)
from snncell.ops.primitives import (
    BatchMatMul as BatchMatMul,
)
from snncell.ops.primitives import (
    Cast as Cast,
)
from snncell.ops.primitives import (
    Ceil as Ceil,
)
from snncell.ops.primitives import (
    Concat as Concat,
)
from snncell.ops.primitives import (
    Conv2D as Conv2D,
)
from snncell.ops.primitives import (
    Cos as Cos,
)
from snncell.ops.primitives import (
    CumSum as CumSum,
)
from snncell.ops.primitives import (
    Div as Div,
)
from snncell.ops.primitives import (
    Dropout as Dropout,
)
from snncell.ops.primitives import (
    Dropout2D as Dropout2D,
)
from snncell.ops.primitives import (
    Equal as Equal,
)
from snncell.ops.primitives import (
    Erf as Erf,
)
from snncell.ops.primitives import (
    Exp as Exp,
)
from snncell.ops.primitives import (
    ExpandDims as ExpandDims,
)
from snncell.ops.primitives import (
    Expm1 as Expm1,
)
from snncell.ops.primitives import (
    Fill as Fill,
)
from snncell.ops.primitives import (
    Floor as Floor,
)
from snncell.ops.primitives import (
    Gather as Gather,
)
from snncell.ops.primitives import (
    GeLU as GeLU,
)
from snncell.ops.primitives import (
    Greater as Greater,
)
from snncell.ops.primitives import (
    GreaterEqual as GreaterEqual,
)
from snncell.ops.primitives import (
    Less as Less,
)
from snncell.ops.primitives import (
    LessEqual as LessEqual,
)
from snncell.ops.primitives import (
    Log as Log,
)
from snncell.ops.primitives import (
    Log1p as Log1p,
)
from snncell.ops.primitives import (
    LogicalAnd as LogicalAnd,
)
from snncell.ops.primitives import (
    LogicalNot as LogicalNot,
)
from snncell.ops.primitives import (
    LogicalOr as LogicalOr,
)
from snncell.ops.primitives import (
    LogSoftmax as LogSoftmax,
)
from snncell.ops.primitives import (
    MatMul as MatMul,
)
from snncell.ops.primitives import (
    Maximum as Maximum,
)
from snncell.ops.primitives import (
    Minimum as Minimum,
)
from snncell.ops.primitives import (
    Mul as Mul,
)
from snncell.ops.primitives import (
    Neg as Neg,
)
from snncell.ops.primitives import (
    NotEqual as NotEqual,
)
from snncell.ops.primitives import (
    OneHot as OneHot,
)
from snncell.ops.primitives import (
    OnesLike as OnesLike,
)
from snncell.ops.primitives import (
    Pow as Pow,
)
from snncell.ops.primitives import (
    RealDiv as RealDiv,
)
from snncell.ops.primitives import (
    ReduceMax as ReduceMax,
)
from snncell.ops.primitives import (
    ReduceMean as ReduceMean,
)
from snncell.ops.primitives import (
    ReduceMin as ReduceMin,
)
from snncell.ops.primitives import (
    ReduceProd as ReduceProd,
)
from snncell.ops.primitives import (
    ReduceSum as ReduceSum,
)
from snncell.ops.primitives import (
    ReLU as ReLU,
)
from snncell.ops.primitives import (
    ReLU6 as ReLU6,
)
from snncell.ops.primitives import (
    Reshape as Reshape,
)
from snncell.ops.primitives import (
    Round as Round,
)
from snncell.ops.primitives import (
    Rsqrt as Rsqrt,
)
from snncell.ops.primitives import (
    Select as Select,
)
from snncell.ops.primitives import (
    Sigmoid as Sigmoid,
)
from snncell.ops.primitives import (
    Sign as Sign,
)
from snncell.ops.primitives import (
    Sin as Sin,
)
from snncell.ops.primitives import (
    Softmax as Softmax,
)
from snncell.ops.primitives import (
    Softplus as Softplus,
)
from snncell.ops.primitives import (
    Split as Split,
)
from snncell.ops.primitives import (
    Sqrt as Sqrt,
)
from snncell.ops.primitives import (
    Square as Square,
)
from snncell.ops.primitives import (
    Squeeze as Squeeze,
)
from snncell.ops.primitives import (
    Stack as Stack,
)
from snncell.ops.primitives import (
    Sub as Sub,
)
from snncell.ops.primitives import (
    Tanh as Tanh,
)
from snncell.ops.primitives import (
    Transpose as Transpose,
)
from snncell.ops.primitives import (
    ZerosLike as ZerosLike,
)
from snncell.ops.random import (
    bernoulli as bernoulli,
)
from snncell.ops.random import (
    dropout as dropout,
)
from snncell.ops.random import (
    dropout2d as dropout2d,
)
from snncell.ops.random import (
    normal as normal,
)
from snncell.ops.random import (
    randint as randint,
)
from snncell.ops.random import (
    randperm as randperm,
)
from snncell.ops.random import (
    set_seed as set_seed,
)
from snncell.ops.random import (
    uniform as uniform,
)
from snncell.ops.reduce import (
    all as all,
)
from snncell.ops.reduce import (
    any as any,
)
from snncell.ops.reduce import (
    argmax as argmax,
)
from snncell.ops.reduce import (
    argmin as argmin,
)
from snncell.ops.reduce import (
    cumsum as cumsum,
)
from snncell.ops.reduce import (
    log_softmax as log_softmax,
)
from snncell.ops.reduce import (
    logsumexp as logsumexp,
)
from snncell.ops.reduce import (
    max as max,
)
from snncell.ops.reduce import (
    mean as mean,
)
from snncell.ops.reduce import (
    min as min,
)
from snncell.ops.reduce import (
    prod as prod,
)
from snncell.ops.reduce import (
    softmax as softmax,
)
from snncell.ops.reduce import (
    std as std,
)
from snncell.ops.reduce import (
    sum as sum,
)
from snncell.ops.reduce import (
    var as var,
)
from snncell.ops.shape import (
    arange as arange,
)
from snncell.ops.shape import (
    broadcast_to as broadcast_to,
)
from snncell.ops.shape import (
    concat as concat,
)
from snncell.ops.shape import (
    expand_dims as expand_dims,
)
from snncell.ops.shape import (
    eye as eye,
)
from snncell.ops.shape import (
    fill as fill,
)
from snncell.ops.shape import (
    flatten as flatten,
)
from snncell.ops.shape import (
    flip as flip,
)
from snncell.ops.shape import (
    full as full,
)
from snncell.ops.shape import (
    gather as gather,
)
from snncell.ops.shape import (
    one_hot as one_hot,
)
from snncell.ops.shape import (
    ones as ones,
)
from snncell.ops.shape import (
    ones_like as ones_like,
)
from snncell.ops.shape import (
    pad as pad,
)
from snncell.ops.shape import (
    reshape as reshape,
)
from snncell.ops.shape import (
    split as split,
)
from snncell.ops.shape import (
    squeeze as squeeze,
)
from snncell.ops.shape import (
    stack as stack,
)
from snncell.ops.shape import (
    swapaxes as swapaxes,
)
from snncell.ops.shape import (
    tile as tile,
)
from snncell.ops.shape import (
    transpose as transpose,
)
from snncell.ops.shape import (
    unstack as unstack,
)
from snncell.ops.shape import (
    zeros as zeros,
)
from snncell.ops.shape import (
    zeros_like as zeros_like,
)
from snncell.tape.transforms import (
    GradOperation as GradOperation,
)
from snncell.tape.transforms import (
    grad as grad,
)
from snncell.tape.transforms import (
    stop_gradient as stop_gradient,
)
from snncell.tape.transforms import (
    value_and_grad as value_and_grad,
)
from snncell.tape.transforms import (
    vjp as vjp,
)
