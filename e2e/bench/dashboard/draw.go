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
	pixel       = 0.75 * vg.Length(1) // a point is 1/72 inch
	columnCount = 24
	columnWidth = 1600 * pixel / columnCount
	rowHeight   = 38 * pixel // 30 pixels and a gap of 8 pixels
	gap         = 8 * pixel
)

// scale says how values from some size on are written: divided by the size and followed by a name.
type scale struct {
	size float64
	name string
}

// units are the supported units, written like in Grafana.
var units = map[string][]scale{
	"short":       {{1, ""}, {1e3, " K"}, {1e6, " Mil"}, {1e9, " Bil"}},
	"percentunit": {{0.01, "%"}},
	"s": {
		{1e-9, " ns"},
		{1e-6, " µs"},
		{1e-3, " ms"},
		{1, " s"},
		{60, " min"},
		{3600, " hours"},
		{86400, " days"},
		{604800, " weeks"},
		{31557600, " years"},
	},
	"bytes": {{1, " B"}, {1 << 10, " KiB"}, {1 << 20, " MiB"}, {1 << 30, " GiB"}},
	"Bps":   {{1, " B/s"}, {1e3, " kB/s"}, {1e6, " MB/s"}, {1e9, " GB/s"}},
	"reqps": {{1, " req/s"}, {1e3, "K req/s"}},
	"ops":   {{1, " ops/s"}, {1e3, "K ops/s"}},
	"eps":   {{1, " evt/s"}, {1e3, "K evt/s"}},
}

// lineColours are Grafana's line colours in order.
var lineColours = []color.NRGBA{
	{0x56, 0xa6, 0x4b, 255},
	{0xf2, 0xcc, 0x0c, 255},
	{0x32, 0x74, 0xd9, 255},
	{0xff, 0x78, 0x0a, 255},
	{0xe0, 0x2f, 0x44, 255},
	{0xa3, 0x52, 0xcc, 255},
	{0x37, 0x87, 0x2d, 255},
	{0xe0, 0xb4, 0x00, 255},
	{0x1f, 0x60, 0xc4, 255},
	{0xfa, 0x64, 0x00, 255},
	{0xc4, 0x16, 0x2a, 255},
	{0x8f, 0x3b, 0xb8, 255},
}

var (
	pageColor   = color.Gray{0xf4}
	gridColor   = color.Gray{0xdd}
	borderColor = color.Gray{0xdc}
	textColor   = color.Gray{0x24}
	labelColor  = color.Gray{0x60}
)

// drawPanels draws all panels at their places.
func (b *board) drawPanels(file string, shown period) error {
	rows := 0
	for _, pane := range b.Panels {
		rows = max(rows, pane.GridPos.Y+pane.GridPos.H)
	}
	w, length := columnWidth*columnCount+gap, rowHeight*vg.Length(rows)+gap
	page, err := draw.NewFormattedCanvas(w, length, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return fmt.Errorf("%s: %w; the name of -out must end with .svg, .png or .pdf", file, err)
	}
	canvas := draw.New(page)
	fillBackground(canvas, pageColor)
	for _, pane := range b.Panels {
		position := pane.GridPos
		left, top := gap+columnWidth*vg.Length(position.X), length-gap-rowHeight*vg.Length(position.Y)
		place := canvas
		place.Rectangle = vg.Rectangle{
			Min: vg.Point{X: left, Y: top - rowHeight*vg.Length(position.H) + gap},
			Max: vg.Point{X: left + columnWidth*vg.Length(position.W) - gap, Y: top},
		}
		if pane.Type == "row" {
			place.FillText(textStyle(15, textColor, draw.XLeft, draw.YCenter), vg.Point{X: left, Y: place.Center().Y}, pane.Title)
			continue
		}
		if err := pane.drawPanel(place, shown); err != nil {
			return fmt.Errorf("panel %q: %w", pane.Title, err)
		}
	}
	var out bytes.Buffer
	if _, err := page.WriteTo(&out); err != nil {
		return err
	}
	// The fallback fonts have letters of the same width.
	drawn := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(file, drawn, 0o644)
}

// drawPanel draws the title, the lines and the legend of a panel.
func (p *panel) drawPanel(place draw.Canvas, shown period) error {
	fillBackground(place, color.White)
	place.StrokeLines(draw.LineStyle{Color: borderColor, Width: pixel}, append(cornersOf(place), place.Min))
	inner := draw.Crop(place, 10*pixel, -10*pixel, 8*pixel, -8*pixel)
	inner.FillText(textStyle(14, textColor, draw.XLeft, draw.YTop), vg.Point{X: inner.Min.X, Y: inner.Max.Y}, p.Title)
	inner.Max.Y -= 26 * pixel
	if len(p.lines) == 0 {
		inner.FillText(textStyle(16, labelColor, draw.XCenter, draw.YCenter), inner.Center(), "no data")
		return nil
	}
	inner.Min.Y += p.drawLegend(inner)
	plotted := plot.New()
	plotted.BackgroundColor = color.Transparent
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = gridColor, gridColor
	plotted.Add(lines)
	least, most := 0.0, math.Inf(-1)
	for i, l := range p.lines {
		for _, part := range l.splitAtGaps(shown.step) {
			drawn, err := plotter.NewLine(part)
			if err != nil {
				return err
			}
			drawn.Color, drawn.Width = lineColour(i), 1.3*pixel
			shade := lineColour(i)
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
	plotted.X.Min, plotted.X.Max = float64(shown.begin.Unix()), float64(shown.end.Unix())
	plotted.Y.Min, plotted.Y.Max = least, most
	plotted.X.Tick.Marker, plotted.Y.Tick.Marker = shown.timeTicks(), valueTicks(p.FieldConfig.Defaults.Unit, least, most)
	for _, axis := range []*plot.Axis{&plotted.X, &plotted.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width, axis.Padding = 0, 0, 0
		axis.Tick.Label.Font, axis.Tick.Label.Color = labelFont(11), labelColor
	}
	plotted.Draw(inner)
	return nil
}

// splitAtGaps splits the line where points are missing.
func (l line) splitAtGaps(step time.Duration) (out []plotter.XYs) {
	for i, p := range l.points {
		if i == 0 || p.at-l.points[i-1].at > 1.5*step.Seconds() {
			out = append(out, nil)
		}
		last := &out[len(out)-1]
		*last = append(*last, plotter.XY{X: p.at, Y: p.value})
	}
	return out
}

// drawLegend draws the names of the lines at the bottom and returns its height. Names that do not
// fit into a third of the panel are counted, where Grafana would scroll.
func (p *panel) drawLegend(place draw.Canvas) vg.Length {
	const entryHeight, markWidth, spacing = 17 * pixel, 18 * pixel, 12 * pixel
	text, more := textStyle(11, labelColor, draw.XLeft, draw.YCenter), textStyle(11, textColor, draw.XRight, draw.YCenter)
	lastRow := max(1, int((place.Max.Y-place.Min.Y)*0.35/entryHeight)) - 1
	type entry struct {
		row int
		x   vg.Length
	}
	var entries []entry
	next := entry{x: place.Min.X}
	for _, l := range p.lines {
		length := markWidth + text.Width(l.name)
		if next.x > place.Min.X && next.x+length > place.Max.X {
			next = entry{row: next.row + 1, x: place.Min.X}
		}
		entries = append(entries, next)
		next.x += length + spacing
	}
	// Without room for all, the last row ends with the number of the others.
	shown := len(entries)
	for room := place.Max.X - more.Width("and 999 more"); shown > 0 && next.row > lastRow; shown-- {
		if e := entries[shown-1]; e.row < lastRow || e.row == lastRow && e.x+markWidth+text.Width(p.lines[shown-1].name) < room {
			break
		}
	}
	rows := min(next.row, lastRow) + 1
	y := func(row int) vg.Length { return place.Min.Y + entryHeight*(vg.Length(rows-row)-0.5) }
	for i, e := range entries[:shown] {
		place.StrokeLine2(draw.LineStyle{Color: lineColour(i), Width: 4 * pixel}, e.x, y(e.row), e.x+markWidth-4*pixel, y(e.row))
		place.FillText(text, vg.Point{X: e.x + markWidth, Y: y(e.row)}, p.lines[i].name)
	}
	if hidden := len(entries) - shown; hidden > 0 {
		place.FillText(more, vg.Point{X: place.Max.X, Y: y(lastRow)}, fmt.Sprintf("and %d more", hidden))
	}
	return entryHeight*vg.Length(rows) + 4*pixel
}

// valueTicks returns ticks at about five round values, in the unit of the largest.
func valueTicks(unit string, least, most float64) (out plot.ConstantTicks) {
	scale := units[unit][0]
	for _, s := range units[unit] {
		if s.size <= max(most, -least)*1.0001 {
			scale = s
		}
	}
	step := roundUp((most - least) / scale.size / 5)
	for n := math.Ceil(least / scale.size / step); n*step*scale.size <= most; n++ {
		out = append(out, plot.Tick{Value: n * step * scale.size, Label: strconv.FormatFloat(n*step, 'g', 6, 64) + scale.name})
	}
	return out
}

// roundUp returns the smallest number 1, 2 or 5 times a power of ten that is not less than x.
func roundUp(value float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, n := range []float64{1, 2, 5} {
		if value <= n*power*1.0001 {
			return n * power
		}
	}
	return 10 * power
}

// timeTicks returns about six full minutes that are not too close to the edges.
func (p period) timeTicks() (out plot.ConstantTicks) {
	timeRange := p.end.Sub(p.begin)
	step := max(time.Minute, (timeRange / 6).Round(time.Minute))
	for at := p.begin.Add(timeRange / 25).Truncate(step).Add(step); at.Before(p.end.Add(-timeRange / 30)); at = at.Add(step) {
		out = append(out, plot.Tick{Value: float64(at.Unix()), Label: at.UTC().Format("15:04")})
	}
	return out
}

// lineColour returns the colour of the i-th line.
func lineColour(i int) color.NRGBA { return lineColours[i%len(lineColours)] }

// labelFont returns a font whose size is in pixels.
func labelFont(size vg.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size*pixel)
}

// textStyle returns the style of a text whose size is in pixels.
func textStyle(size vg.Length, textColour color.Color, xAlign draw.XAlignment, yAlign draw.YAlignment) draw.TextStyle {
	return draw.TextStyle{Color: textColour, Font: labelFont(size), XAlign: xAlign, YAlign: yAlign, Handler: plot.DefaultTextHandler}
}

// fillBackground fills a canvas.
func fillBackground(c draw.Canvas, with color.Color) { c.FillPolygon(with, cornersOf(c)) }

// cornersOf returns the corners of a canvas.
func cornersOf(canvas draw.Canvas) []vg.Point {
	return []vg.Point{canvas.Min, {X: canvas.Max.X, Y: canvas.Min.Y}, canvas.Max, {X: canvas.Min.X, Y: canvas.Max.Y}}
}
