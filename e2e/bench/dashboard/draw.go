package dashboard

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Grafana's grid, 1600 px wide.
const (
	px      = 0.75 * vg.Length(1) // a point is 1/72 inch
	columns = 24
	column  = 1600 * px / columns
	height  = 38 * px // 30 px and a gap of 8 px
	gap     = 8 * px
)

// scale is how values from some size on are written: divided by the size and followed by a name.
type scale struct {
	size float64
	name string
}

// units are the supported units, written like in Grafana.
var units = map[string][]scale{
	"short":       {{1, ""}, {1e3, " K"}, {1e6, " Mil"}, {1e9, " Bil"}},
	"percentunit": {{0.01, "%"}},
	"s":           {{1e-9, " ns"}, {1e-6, " µs"}, {1e-3, " ms"}, {1, " s"}, {60, " min"}, {3600, " hours"}, {86400, " days"}, {604800, " weeks"}, {31557600, " years"}},
	"bytes":       {{1, " B"}, {1 << 10, " KiB"}, {1 << 20, " MiB"}, {1 << 30, " GiB"}},
	"Bps":         {{1, " B/s"}, {1e3, " kB/s"}, {1e6, " MB/s"}, {1e9, " GB/s"}},
	"reqps":       {{1, " req/s"}, {1e3, "K req/s"}},
	"ops":         {{1, " ops/s"}, {1e3, "K ops/s"}},
	"eps":         {{1, " evt/s"}, {1e3, "K evt/s"}},
}

// colours are Grafana's line colours in order.
var colours = []color.NRGBA{
	{0x56, 0xa6, 0x4b, 255}, {0xf2, 0xcc, 0x0c, 255}, {0x32, 0x74, 0xd9, 255}, {0xff, 0x78, 0x0a, 255}, {0xe0, 0x2f, 0x44, 255}, {0xa3, 0x52, 0xcc, 255},
	{0x37, 0x87, 0x2d, 255}, {0xe0, 0xb4, 0x00, 255}, {0x1f, 0x60, 0xc4, 255}, {0xfa, 0x64, 0x00, 255}, {0xc4, 0x16, 0x2a, 255}, {0x8f, 0x3b, 0xb8, 255},
}

var (
	paper  = color.Gray{0xf4}
	grid   = color.Gray{0xdd}
	border = color.Gray{0xdc}
	ink    = color.Gray{0x24}
	pale   = color.Gray{0x60}
)

// draw draws all panels at their places.
func (b *board) draw(file string, asked period) error {
	rows := 0
	for _, p := range b.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	w, h := column*columns+gap, height*vg.Length(rows)+gap
	page, err := draw.NewFormattedCanvas(w, h, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return fmt.Errorf("%s: %w; the name of -out must end with .svg, .png or .pdf", file, err)
	}
	all := draw.New(page)
	fill(all, paper)
	for _, p := range b.Panels {
		at := p.GridPos
		left, top := gap+column*vg.Length(at.X), h-gap-height*vg.Length(at.Y)
		place := all
		place.Rectangle = vg.Rectangle{
			Min: vg.Point{X: left, Y: top - height*vg.Length(at.H) + gap}, Max: vg.Point{X: left + column*vg.Length(at.W) - gap, Y: top},
		}
		if p.Type == "row" {
			place.FillText(style(15, ink, draw.XLeft, draw.YCenter), vg.Point{X: left, Y: place.Center().Y}, p.Title)
			continue
		}
		if err := p.draw(place, asked); err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
	}
	var out bytes.Buffer
	if _, err := page.WriteTo(&out); err != nil {
		return err
	}
	// The fallback fonts have letters of the same width.
	drawn := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(file, drawn, 0o644)
}

// draw draws the title, the lines and the legend of a panel.
func (p *panel) draw(place draw.Canvas, asked period) error {
	fill(place, color.White)
	place.StrokeLines(draw.LineStyle{Color: border, Width: px}, append(corners(place), place.Min))
	inner := draw.Crop(place, 10*px, -10*px, 8*px, -8*px)
	inner.FillText(style(14, ink, draw.XLeft, draw.YTop), vg.Point{X: inner.Min.X, Y: inner.Max.Y}, p.Title)
	inner.Max.Y -= 26 * px
	if len(p.lines) == 0 {
		inner.FillText(style(16, pale, draw.XCenter, draw.YCenter), inner.Center(), "no data")
		return nil
	}
	inner.Min.Y += p.legend(inner)
	plotted := plot.New()
	plotted.BackgroundColor = color.Transparent
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	plotted.Add(lines)
	least, most := 0.0, math.Inf(-1)
	for i, l := range p.lines {
		for _, part := range l.parts(asked.step) {
			drawn, err := plotter.NewLine(part)
			if err != nil {
				return err
			}
			drawn.Color, drawn.Width = colour(i), 1.3*px
			shade := colour(i)
			shade.A = 20
			drawn.FillColor = shade
			plotted.Add(drawn)
			_, _, low, high := plotter.XYRange(part)
			least, most = min(least, low), max(most, high)
		}
	}
	if most <= least {
		most = least + 1
	}
	most += (most - least) / 20
	if d := p.FieldConfig.Defaults; d.Min != nil {
		least = *d.Min
	}
	if d := p.FieldConfig.Defaults; d.Max != nil {
		most = *d.Max
	}
	plotted.X.Min, plotted.X.Max = float64(asked.begin.Unix()), float64(asked.end.Unix())
	plotted.Y.Min, plotted.Y.Max = least, most
	plotted.X.Tick.Marker, plotted.Y.Tick.Marker = asked.ticks(), ticks(p.FieldConfig.Defaults.Unit, least, most)
	for _, axis := range []*plot.Axis{&plotted.X, &plotted.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width, axis.Padding = 0, 0, 0
		axis.Tick.Label.Font, axis.Tick.Label.Color = face(11), pale
	}
	plotted.Draw(inner)
	return nil
}

// parts splits the line where points are missing.
func (l line) parts(step time.Duration) (out []plotter.XYs) {
	for i, p := range l.points {
		if i == 0 || p.at-l.points[i-1].at > 1.5*step.Seconds() {
			out = append(out, nil)
		}
		last := &out[len(out)-1]
		*last = append(*last, plotter.XY{X: p.at, Y: p.value})
	}
	return out
}

// legend draws the names of the lines at the bottom and returns its height. Names that do not fit
// into a third of the panel are counted, where Grafana would scroll.
func (p *panel) legend(place draw.Canvas) vg.Length {
	const rowHeight, mark, between = 17 * px, 18 * px, 12 * px
	text, more := style(11, pale, draw.XLeft, draw.YCenter), style(11, ink, draw.XRight, draw.YCenter)
	last := max(1, int((place.Max.Y-place.Min.Y)*0.35/rowHeight)) - 1
	type entry struct {
		row int
		x   vg.Length
	}
	var entries []entry
	at := entry{x: place.Min.X}
	for _, l := range p.lines {
		w := mark + text.Width(l.name)
		if at.x > place.Min.X && at.x+w > place.Max.X {
			at = entry{row: at.row + 1, x: place.Min.X}
		}
		entries = append(entries, at)
		at.x += w + between
	}
	shown := len(entries)
	for room := place.Max.X - more.Width("and 999 more"); shown > 0 && at.row > last; shown-- {
		if e := entries[shown-1]; e.row < last || e.row == last && e.x+mark+text.Width(p.lines[shown-1].name) < room {
			break
		}
	}
	rows := min(at.row, last) + 1
	y := func(row int) vg.Length { return place.Min.Y + rowHeight*(vg.Length(rows-row)-0.5) }
	for i, e := range entries[:shown] {
		place.StrokeLine2(draw.LineStyle{Color: colour(i), Width: 4 * px}, e.x, y(e.row), e.x+mark-4*px, y(e.row))
		place.FillText(text, vg.Point{X: e.x + mark, Y: y(e.row)}, p.lines[i].name)
	}
	if left := len(entries) - shown; left > 0 {
		place.FillText(more, vg.Point{X: place.Max.X, Y: y(last)}, fmt.Sprintf("and %d more", left))
	}
	return rowHeight*vg.Length(rows) + 4*px
}

// ticks returns round values in the unit of the largest.
func ticks(unit string, least, most float64) (out plot.ConstantTicks) {
	in := units[unit][0]
	for _, s := range units[unit] {
		if s.size <= max(most, -least)*1.0001 {
			in = s
		}
	}
	step := round((most - least) / in.size / 5)
	for n := math.Ceil(least / in.size / step); n*step*in.size <= most; n++ {
		out = append(out, plot.Tick{Value: n * step * in.size, Label: strconv.FormatFloat(n*step, 'g', 6, 64) + in.name})
	}
	return out
}

// round returns the smallest number 1, 2 or 5 times a power of ten that is not less than x.
func round(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if x <= n*power*1.0001 {
			return n * power
		}
	}
	return 10 * power
}

// ticks returns about six full minutes that are not too close to the edges.
func (p period) ticks() (out plot.ConstantTicks) {
	last := p.end.Sub(p.begin)
	step := max(time.Minute, (last / 6).Round(time.Minute))
	for at := p.begin.Add(last / 25).Truncate(step).Add(step); at.Before(p.end.Add(-last / 30)); at = at.Add(step) {
		out = append(out, plot.Tick{Value: float64(at.Unix()), Label: at.UTC().Format("15:04")})
	}
	return out
}

func colour(i int) color.NRGBA { return colours[i%len(colours)] }

func face(size vg.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size*px)
}

func style(size vg.Length, c color.Color, x draw.XAlignment, y draw.YAlignment) draw.TextStyle {
	return draw.TextStyle{Color: c, Font: face(size), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

func fill(c draw.Canvas, with color.Color) { c.FillPolygon(with, corners(c)) }

func corners(c draw.Canvas) []vg.Point {
	return []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}}
}
