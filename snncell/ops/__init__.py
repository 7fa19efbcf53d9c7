"""The differentiable operations, by family; `Tensor` gets its operators and methods when this package is imported."""

from snncell.arguments.guard import (
    guard as _guard,
)
from snncell.ops import (
    methods as methods,
)
from snncell.ops.activation import (
    gelu as gelu,
    glu as glu,
    leaky_relu as leaky_relu,
    logsigmoid as logsigmoid,
    mish as mish,
    relu as relu,
    relu6 as relu6,
    sigmoid as sigmoid,
    silu as silu,
    softmin as softmin,
    softplus as softplus,
    softsign as softsign,
    tanhshrink as tanhshrink,
)
from snncell.ops.adaptive_pool import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool2d as adaptive_max_pool2d,
)
from snncell.ops.arithmetic import (
    addcdiv as addcdiv,
    addcmul as addcmul,
    copysign as copysign,
    float_power as float_power,
    fmax as fmax,
    fmin as fmin,
    fmod as fmod,
    frac as frac,
    heaviside as heaviside,
    isclose as isclose,
    isinf as isinf,
    lerp as lerp,
    reciprocal as reciprocal,
    sgn as sgn,
    signbit as signbit,
    trunc as trunc,
)
from snncell.ops.batching import (
    vmap as vmap,
)
from snncell.ops.chosen import (
    argwhere as argwhere,
    masked_select as masked_select,
    nonzero as nonzero,
    searchsorted as searchsorted,
    unique_consecutive as unique_consecutive,
)
from snncell.ops.class_loss import (
    cross_entropy as cross_entropy,
    nll_loss as nll_loss,
)
from snncell.ops.control import (
    assign as assign,
    assign_add as assign_add,
    assign_sub as assign_sub,
    depend as depend,
    scan as scan,
)
from snncell.ops.conv import (
    conv as conv,
    conv1d as conv1d,
    conv2d as conv2d,
    conv_transpose2d as conv_transpose2d,
)
from snncell.ops.creation import (
    arange as arange,
    eye as eye,
    fill as fill,
    full as full,
    full_like as full_like,
    linspace as linspace,
    ones as ones,
    ones_like as ones_like,
    zeros as zeros,
    zeros_like as zeros_like,
)
from snncell.ops.elementwise import (
    abs as abs,
    add as add,
    arctan as arctan,
    atan as atan,
    cast as cast,
    ceil as ceil,
    clamp as clamp,
    clip as clip,
    conj as conj,
    cos as cos,
    div as div,
    divide as divide,
    erf as erf,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    floor_div as floor_div,
    floor_divide as floor_divide,
    log as log,
    log1p as log1p,
    maximum as maximum,
    minimum as minimum,
    mod as mod,
    mul as mul,
    multiply as multiply,
    neg as neg,
    negative as negative,
    pow as pow,
    remainder as remainder,
    round as round,
    rsqrt as rsqrt,
    sign as sign,
    sin as sin,
    sqrt as sqrt,
    square as square,
    sub as sub,
    subtract as subtract,
    tanh as tanh,
    true_divide as true_divide,
)
from snncell.ops.fft import (
    fft as fft,
    ifft as ifft,
    imag as imag,
    irfft as irfft,
    real as real,
    rfft as rfft,
)
from snncell.ops.indexing import (
    gather as gather,
    one_hot as one_hot,
)
from snncell.ops.jacobians import (
    jacfwd as jacfwd,
    jacrev as jacrev,
)
from snncell.ops.linalg import (
    bmm as bmm,
    einsum as einsum,
    matmul as matmul,
)
from snncell.ops.logarithms import (
    erfc as erfc,
    erfinv as erfinv,
    exp2 as exp2,
    log2 as log2,
    log10 as log10,
    logaddexp as logaddexp,
    logit as logit,
)
from snncell.ops.logic import (
    bitwise_and as bitwise_and,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    eq as eq,
    equal as equal,
    ge as ge,
    greater as greater,
    greater_equal as greater_equal,
    gt as gt,
    isfinite as isfinite,
    isnan as isnan,
    le as le,
    less as less,
    less_equal as less_equal,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    lt as lt,
    ne as ne,
    not_equal as not_equal,
    select as select,
    where as where,
)
from snncell.ops.loss import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    cosine_embedding_loss as cosine_embedding_loss,
    gaussian_nll_loss as gaussian_nll_loss,
    hinge_embedding_loss as hinge_embedding_loss,
    huber_loss as huber_loss,
    kl_div as kl_div,
    l1_loss as l1_loss,
    margin_ranking_loss as margin_ranking_loss,
    mse_loss as mse_loss,
    poisson_nll_loss as poisson_nll_loss,
    smooth_l1_loss as smooth_l1_loss,
    soft_margin_loss as soft_margin_loss,
    triplet_margin_loss as triplet_margin_loss,
)
from snncell.ops.maps import (
    HyperMap as HyperMap,
    Map as Map,
)
from snncell.ops.masks import (
    masked_fill as masked_fill,
    masked_scatter as masked_scatter,
    sequence_mask as sequence_mask,
)
from snncell.ops.matrices import (
    addbmm as addbmm,
    addmm as addmm,
    addmv as addmv,
    baddbmm as baddbmm,
    diag as diag,
    dot as dot,
    inner as inner,
    matrix_power as matrix_power,
    mm as mm,
    mT as mT,
    mv as mv,
    outer as outer,
    trace as trace,
    tril as tril,
    triu as triu,
)
from snncell.ops.norms import (
    clip_by_global_norm as clip_by_global_norm,
    clip_by_norm as clip_by_norm,
    clip_by_value as clip_by_value,
    norm as norm,
)
from snncell.ops.padding import (
    pad as pad,
)
from snncell.ops.patches import (
    fold as fold,
    unfold as unfold,
)
from snncell.ops.pool import (
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    sum_pool1d as sum_pool1d,
    sum_pool2d as sum_pool2d,
)
from snncell.ops.positions import (
    gather_elements as gather_elements,
    gather_nd as gather_nd,
    index_fill as index_fill,
    index_put as index_put,
    index_select as index_select,
    scatter as scatter,
    scatter_add as scatter_add,
    tensor_scatter_add as tensor_scatter_add,
    tensor_scatter_elements as tensor_scatter_elements,
)
from snncell.ops.primitives import (
    Abs as Abs,
    Add as Add,
    Argmax as Argmax,
    Assign as Assign,
    BatchMatMul as BatchMatMul,
    Cast as Cast,
    Ceil as Ceil,
    Concat as Concat,
    Conv2D as Conv2D,
    Cos as Cos,
    CumSum as CumSum,
    Div as Div,
    Dropout as Dropout,
    Dropout2D as Dropout2D,
    Equal as Equal,
    Erf as Erf,
    Exp as Exp,
    ExpandDims as ExpandDims,
    Expm1 as Expm1,
    Fill as Fill,
    Floor as Floor,
    Gather as Gather,
    GeLU as GeLU,
    Greater as Greater,
    GreaterEqual as GreaterEqual,
    Less as Less,
    LessEqual as LessEqual,
    Log as Log,
    Log1p as Log1p,
    LogicalAnd as LogicalAnd,
    LogicalNot as LogicalNot,
    LogicalOr as LogicalOr,
    LogSoftmax as LogSoftmax,
    MatMul as MatMul,
    Maximum as Maximum,
    Minimum as Minimum,
    Mul as Mul,
    Neg as Neg,
    NotEqual as NotEqual,
    OneHot as OneHot,
    OnesLike as OnesLike,
    Pow as Pow,
    RealDiv as RealDiv,
    ReduceMax as ReduceMax,
    ReduceMean as ReduceMean,
    ReduceMin as ReduceMin,
    ReduceProd as ReduceProd,
    ReduceSum as ReduceSum,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    Reshape as Reshape,
    Round as Round,
    Rsqrt as Rsqrt,
    Select as Select,
    Sigmoid as Sigmoid,
    Sign as Sign,
    Sin as Sin,
    Softmax as Softmax,
    Softplus as Softplus,
    Split as Split,
    Sqrt as Sqrt,
    Square as Square,
    Squeeze as Squeeze,
    Stack as Stack,
    Sub as Sub,
    Tanh as Tanh,
    Transpose as Transpose,
    ZerosLike as ZerosLike,
)
from snncell.ops.random import (
    bernoulli as bernoulli,
    dropout as dropout,
    dropout2d as dropout2d,
    normal as normal,
    rand as rand,
    rand_like as rand_like,
    randint as randint,
    randn as randn,
    randn_like as randn_like,
    randperm as randperm,
    uniform as uniform,
)
from snncell.ops.rearrange import (
    chunk as chunk,
    diagonal as diagonal,
    diff as diff,
    expand as expand,
    hstack as hstack,
    meshgrid as meshgrid,
    moveaxis as moveaxis,
    movedim as movedim,
    narrow as narrow,
    permute as permute,
    ravel as ravel,
    repeat_interleave as repeat_interleave,
    roll as roll,
    vstack as vstack,
)
from snncell.ops.rectifiers import (
    celu as celu,
    elu as elu,
    hardshrink as hardshrink,
    hardsigmoid as hardsigmoid,
    hardswish as hardswish,
    hardtanh as hardtanh,
    prelu as prelu,
    selu as selu,
    softshrink as softshrink,
)
from snncell.ops.reduce import (
    all as all,
    any as any,
    argmax as argmax,
    argmin as argmin,
    cumsum as cumsum,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    max as max,
    mean as mean,
    min as min,
    prod as prod,
    softmax as softmax,
    std as std,
    sum as sum,
    var as var,
)
from snncell.ops.resample import (
    interpolate as interpolate,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
)
from snncell.ops.running import (
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    logcumsumexp as logcumsumexp,
)
from snncell.ops.sampling import (
    multinomial as multinomial,
)
from snncell.ops.seeds import (
    get_seed as get_seed,
    set_seed as set_seed,
)
from snncell.ops.shape import (
    broadcast_to as broadcast_to,
    cat as cat,
    concat as concat,
    expand_dims as expand_dims,
    flatten as flatten,
    flip as flip,
    reshape as reshape,
    split as split,
    squeeze as squeeze,
    stack as stack,
    swapaxes as swapaxes,
    swapdims as swapdims,
    tile as tile,
    transpose as transpose,
    unbind as unbind,
    unstack as unstack,
)
from snncell.ops.sorting import (
    argsort as argsort,
    sort as sort,
)
from snncell.ops.statistics import (
    amax as amax,
    amin as amin,
    argmax_with_value as argmax_with_value,
    argmin_with_value as argmin_with_value,
    count_nonzero as count_nonzero,
    median as median,
    nanmean as nanmean,
    nansum as nansum,
    quantile as quantile,
    top_k as top_k,
    topk as topk,
)
from snncell.ops.trigonometry import (
    acos as acos,
    acosh as acosh,
    arccos as arccos,
    arccosh as arccosh,
    arcsin as arcsin,
    arcsinh as arcsinh,
    arctan2 as arctan2,
    arctanh as arctanh,
    asin as asin,
    asinh as asinh,
    atan2 as atan2,
    atanh as atanh,
    cosh as cosh,
    deg2rad as deg2rad,
    hypot as hypot,
    rad2deg as rad2deg,
    sinh as sinh,
    tan as tan,
)
from snncell.tape.forward import (
    jvp as jvp,
)
from snncell.tape.frames import (
    machinery as _machinery,
)
from snncell.tape.grad_operation import (
    GradOperation as GradOperation,
)
from snncell.tape.hook_backward import (
    HookBackward as HookBackward,
)
from snncell.tape.recompute import (
    recompute as recompute,
)
from snncell.tape.transforms import (
    get_grad as get_grad,
    grad as grad,
    stop_gradient as stop_gradient,
    value_and_grad as value_and_grad,
    vjp as vjp,
)

_machinery(__file__)
_guard(globals())
