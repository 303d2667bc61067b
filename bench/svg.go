package bench

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// A Plot is a picture of a report.
type Plot struct {
	// File is its name beside the report, Title what it shows.
	File, Title string
	SVG         string
}

// The look of plots. The colours are told apart by those who see fewer, too.
const (
	plotWidth  = 860
	plotFont   = "font-family='system-ui, sans-serif'"
	inkColour  = "#24292f"
	gridColour = "#d0d7de"
)

var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"}

// colourOf keeps a target's colour the same in every plot.
func colourOf(target string) string {
	for i, t := range []string{Fenced, PgBouncerSession, HAProxy, Twemproxy, Reader, PgBouncerTx, Direct} {
		if t == target {
			return colours[i]
		}
	}
	var sum int
	for _, c := range target {
		sum += int(c)
	}
	return colours[sum%len(colours)]
}

// A picture is an SVG that is being drawn.
type picture struct {
	b      strings.Builder
	height float64
}

func newPicture(title string, height float64) *picture {
	p := &picture{height: height}
	fmt.Fprintf(&p.b, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %s' %s font-size='12' fill='%s'>\n", plotWidth, num(height), plotFont, inkColour)
	fmt.Fprintf(&p.b, "<rect width='100%%' height='100%%' fill='white'/>\n")
	p.text(16, 24, "start", "font-size='15' font-weight='600'", title)
	return p
}

func (p *picture) text(x, y float64, anchor, more, s string) {
	fmt.Fprintf(&p.b, "<text x='%s' y='%s' text-anchor='%s' %s>%s</text>\n", num(x), num(y), anchor, more, html.EscapeString(s))
}

func (p *picture) line(x1, y1, x2, y2 float64, colour string, width float64) {
	fmt.Fprintf(&p.b, "<line x1='%s' y1='%s' x2='%s' y2='%s' stroke='%s' stroke-width='%s'/>\n", num(x1), num(y1), num(x2), num(y2), colour, num(width))
}

func (p *picture) box(x, y, w, h float64, colour string) {
	fmt.Fprintf(&p.b, "<rect x='%s' y='%s' width='%s' height='%s' fill='%s'/>\n", num(x), num(y), num(w), num(h), colour)
}

func (p *picture) String() string { return p.b.String() + "</svg>\n" }

// num writes a coordinate.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

// A bar is a value with the quartiles around it.
type bar struct {
	label, colour string
	group         string // bars of a group stand together below its name
	value         Summary
}

// bars draws horizontal bars, from zero, with a line at mark where that is above zero.
func bars(title, axis string, mark float64, all []bar) string {
	const left, right, high = 210, 70, 18
	height := 70.0
	for i, b := range all {
		if i == 0 || b.group != all[i-1].group {
			height += 26
		}
		height += high
	}
	top := mark
	for _, b := range all {
		top = max(top, b.value.Median, b.value.Q3)
	}
	step := niceStep(top)
	top = max(1, math.Ceil(top/step)) * step
	x := func(v float64) float64 { return left + (plotWidth-left-right)*v/top }
	p := newPicture(title, height)
	bottom := height - 34
	for v := 0.0; v <= top+step/2; v += step {
		p.line(x(v), 40, x(v), bottom, gridColour, 1)
		p.text(x(v), bottom+14, "middle", "", short(v))
	}
	p.text(x(top/2), bottom+28, "middle", "", axis)
	if mark > 0 {
		p.line(x(mark), 40, x(mark), bottom, inkColour, 1)
	}
	y := 40.0
	for i, b := range all {
		if i == 0 || b.group != all[i-1].group {
			p.text(16, y+18, "start", "font-weight='600'", b.group)
			y += 26
		}
		p.text(left-8, y+12, "end", "", b.label)
		p.box(left, y+2, x(b.value.Median)-left, high-5, b.colour)
		p.line(x(b.value.Q1), y+8.5, x(b.value.Q3), y+8.5, inkColour, 1.5)
		p.text(max(x(b.value.Median), x(b.value.Q3))+6, y+12, "start", "", short(b.value.Median))
		y += high
	}
	return p.String()
}

// A curve is points in the order of x.
type curve struct {
	label, colour string
	x, y          []float64
}

// An axis says how a value becomes a place.
type axis struct {
	label string
	log   bool
	// ticks are the values that are written, with their texts where those differ.
	ticks []float64
	texts []string
}

func (a axis) place(v, low, high float64) float64 {
	if a.log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	if high == low {
		return 0.5
	}
	return (v - low) / (high - low)
}

// lines draws curves. On a logarithmic axis values must be above zero.
func lines(title string, ax, ay axis, all []curve) string {
	const left, right, top, height = 70, 200, 60, 400
	p := newPicture(title, height)
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, c := range all {
		for i := range c.x {
			lowX, highX = min(lowX, c.x[i]), max(highX, c.x[i])
			lowY, highY = min(lowY, c.y[i]), max(highY, c.y[i])
		}
	}
	if math.IsInf(lowX, 1) {
		return p.String()
	}
	if ax.ticks == nil {
		ax.ticks = ticks(lowX, highX, ax.log)
	}
	if !ay.log {
		lowY = min(lowY, 0)
	}
	ay.ticks = ticks(lowY, highY, ay.log)
	lowX, highX = min(lowX, ax.ticks[0]), max(highX, ax.ticks[len(ax.ticks)-1])
	lowY, highY = min(lowY, ay.ticks[0]), max(highY, ay.ticks[len(ay.ticks)-1])
	const bottom = height - 44
	x := func(v float64) float64 { return left + (plotWidth-left-right)*ax.place(v, lowX, highX) }
	y := func(v float64) float64 { return bottom - (bottom-top)*ay.place(v, lowY, highY) }
	for i, v := range ax.ticks {
		text := short(v)
		if i < len(ax.texts) {
			text = ax.texts[i]
		}
		p.line(x(v), top, x(v), bottom, gridColour, 1)
		p.text(x(v), bottom+16, "middle", "", text)
	}
	for _, v := range ay.ticks {
		p.line(left, y(v), plotWidth-right, y(v), gridColour, 1)
		p.text(left-6, y(v)+4, "end", "", short(v))
	}
	p.text((left+plotWidth-right)/2, height-8, "middle", "", ax.label)
	p.text(16, top-8, "start", "", ay.label)
	for i, c := range all {
		var d strings.Builder
		for j := range c.x {
			fmt.Fprintf(&d, "%s,%s ", num(x(c.x[j])), num(y(c.y[j])))
		}
		fmt.Fprintf(&p.b, "<polyline points='%s' fill='none' stroke='%s' stroke-width='2'/>\n", strings.TrimSpace(d.String()), c.colour)
		at := float64(top + 10 + 20*i)
		p.line(plotWidth-right+14, at-4, plotWidth-right+34, at-4, c.colour, 3)
		p.text(plotWidth-right+40, at, "start", "", c.label)
	}
	return p.String()
}

// niceStep is the distance of four to ten lines from zero to top: 1, 2 or 5 of some
// power of ten.
func niceStep(top float64) float64 {
	if !(top > 0) || math.IsInf(top, 0) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(top)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1} {
		if top/(p*f) <= 10 {
			return p * f
		}
	}
	return p
}

// ticks are values to write on an axis, around low and high.
func ticks(low, high float64, log bool) []float64 {
	var ts []float64
	if log {
		for e := math.Floor(math.Log10(low)); ; e++ {
			v := math.Pow(10, e)
			ts = append(ts, v)
			if v >= high {
				return ts
			}
		}
	}
	step := niceStep(max(math.Abs(high), math.Abs(low)))
	for v := math.Floor(low/step) * step; ; v += step {
		ts = append(ts, v)
		if v >= high {
			return ts
		}
	}
}

// short writes a number with three digits or so.
func short(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(math.Round(v/1e3), 'f', -1, 64) + "k"
	case a >= 100:
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
