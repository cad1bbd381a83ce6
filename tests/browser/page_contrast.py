"""The contrast of a text with what lies behind it, as the browser draws them."""

# Contrast of text and ground (WCAG 2), grounds that let shine through laid over those beneath.
CONTRAST = """
element => {
    const parse = c => c.match(/[\\d.]+/g).map(Number);
    const over = (top, under) => {
        const a = top.length > 3 ? top[3] : 1;
        return [0, 1, 2].map(i => top[i] * a + under[i] * (1 - a));
    };
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    const ground = layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
    const light = c => {
        const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [a, b] = [light(over(parse(getComputedStyle(element).color), ground)), light(ground)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
"""
