package main

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// save draws the figure: the server as lines, the floor dashed in the same colour.
func (f *figure) save(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, f.x, f.y
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.X.Tick.Marker = ticksAtPoints(f.curves)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	p.Add(plotter.NewGrid())
	least, most := math.Inf(1), 0.0
	var names []string
	for _, c := range f.curves {
		var xys plotter.XYs
		for _, at := range c.points {
			if at.y > 0 { // 0 has no logarithm
				xys = append(xys, plotter.XY{X: at.x, Y: at.y})
				least, most = min(least, at.y), max(most, at.y)
			}
		}
		if len(xys) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		i := slices.Index(names, c.name)
		if i < 0 {
			i, names = len(names), append(names, c.name)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.2)
		marks.Color, marks.Shape, marks.Radius = plotutil.Color(i), plotutil.Shape(i), vg.Points(2.5)
		name := c.name
		if c.ofFloor {
			line.Dashes, line.Width = []vg.Length{vg.Points(4), vg.Points(3)}, vg.Points(0.8)
			name += ", floor"
		}
		p.Add(line, marks)
		p.Legend.Add(name, line, marks)
	}
	// Whole decades, and one more for the legend above the curves.
	p.Y.Min = math.Pow(10, math.Floor(math.Log10(least)))
	p.Y.Max = math.Pow(10, math.Ceil(math.Log10(most))+math.Ceil(float64(len(f.curves))/6))
	return p.Save(20*vg.Centimeter, 12*vg.Centimeter, file)
}

// ticksAtPoints returns ticks at the measured points.
func ticksAtPoints(curves []*curve) plot.ConstantTicks {
	var xs []float64
	for _, c := range curves {
		for _, at := range c.points {
			xs = append(xs, at.x)
		}
	}
	slices.Sort(xs)
	var out plot.ConstantTicks
	for _, x := range slices.Compact(xs) {
		out = append(out, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	return out
}
