"""Line plots with logarithmic axes as SVG text: no library, and the same bytes for the same data."""
import math

COLOURS = ("#1b6ca8", "#d1495b", "#3c8d40", "#8a5aa8", "#c77f00", "#4d4d4d")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 700, 360, 64, 230, 34, 46


def short(v):
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if v >= size and (v >= 1e4 or v == size):
            return f"{v / size:.4g}{unit}"
    return f"{v:.4g}"


def axis(values):
    """Limits at powers of ten, or of two where the values span less than that."""
    low, high = min(values), max(values)
    base = 10 if high / low > 30 else 2
    a, b = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    b = max(b, a + 1)
    return base ** a, base ** b, [base ** e for e in range(a, b + 1)]


def escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;")


def plot(title, xlabel, ylabel, series):
    """series: {name: [(x, y), ...]}, all positive."""
    series = {name: sorted(p for p in points if p[1] > 0) for name, points in series.items()}
    series = {name: points for name, points in series.items() if points}
    xs = sorted({x for points in series.values() for x, _ in points})
    x0, x1 = xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] * 2
    y0, y1, yticks = axis([y for points in series.values() for _, y in points])
    w, h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def px(x):
        return LEFT + w * math.log(x / x0) / math.log(x1 / x0)

    def py(y):
        return TOP + h - h * math.log(y / y0) / math.log(y1 / y0)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>']
    for y in yticks:
        out += [f'<line x1="{LEFT}" y1="{py(y):.1f}" x2="{LEFT + w}" y2="{py(y):.1f}" stroke="#ddd"/>',
                f'<text x="{LEFT - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{short(y)}</text>']
    labelled = -math.inf
    for x in xs:
        if px(x) < labelled + 36:
            continue
        labelled = px(x)
        out += [f'<line x1="{px(x):.1f}" y1="{TOP}" x2="{px(x):.1f}" y2="{TOP + h}" stroke="#eee"/>',
                f'<text x="{px(x):.1f}" y="{TOP + h + 16}" text-anchor="middle">{short(x)}</text>']
    out += [f'<rect x="{LEFT}" y="{TOP}" width="{w}" height="{h}" fill="none" stroke="#888"/>',
            f'<text x="{LEFT + w / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(xlabel)}</text>',
            f'<text transform="translate(16 {TOP + h / 2:.1f}) rotate(-90)" text-anchor="middle">{escape(ylabel)}</text>']
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        y = TOP + 10 + 18 * i
        out += [f'<line x1="{LEFT + w + 10}" y1="{y}" x2="{LEFT + w + 30}" y2="{y}" stroke="{colour}" stroke-width="2"/>',
                f'<text x="{LEFT + w + 35}" y="{y + 4}">{escape(name)}</text>']
    return "\n".join(out + ["</svg>", ""])
