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
	drawing := plot.New()
	drawing.Title.Text, drawing.X.Label.Text, drawing.Y.Label.Text = f.title, f.xLabel, f.yLabel
	drawing.X.Scale, drawing.Y.Scale = plot.LogScale{}, plot.LogScale{}
	drawing.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	drawing.X.Tick.Marker = ticksAtPoints(f.curves)
	drawing.Legend.Top, drawing.Legend.Left = true, true
	drawing.Legend.TextStyle.Font.Size = vg.Points(9)
	drawing.Add(plotter.NewGrid())
	least, most := math.Inf(1), 0.0
	var names []string
	for _, plotted := range f.curves {
		var xys plotter.XYs
		for _, at := range plotted.points {
			if at.cost > 0 { // 0 has no logarithm
				xys = append(xys, plotter.XY{X: at.size, Y: at.cost})
				least, most = min(least, at.cost), max(most, at.cost)
			}
		}
		if len(xys) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		i := slices.Index(names, plotted.name)
		if i < 0 {
			i, names = len(names), append(names, plotted.name)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.2)
		marks.Color, marks.Shape, marks.Radius = plotutil.Color(i), plotutil.Shape(i), vg.Points(2.5)
		name := plotted.name
		if plotted.ofFloor {
			line.Dashes, line.Width = []vg.Length{vg.Points(4), vg.Points(3)}, vg.Points(0.8)
			name += ", floor"
		}
		drawing.Add(line, marks)
		drawing.Legend.Add(name, line, marks)
	}
	// Whole decades, and one more for the legend above the curves.
	drawing.Y.Min = math.Pow(10, math.Floor(math.Log10(least)))
	drawing.Y.Max = math.Pow(10, math.Ceil(math.Log10(most))+math.Ceil(float64(len(f.curves))/6))
	return drawing.Save(20*vg.Centimeter, 12*vg.Centimeter, file)
}

// ticksAtPoints returns ticks at the measured points.
func ticksAtPoints(curves []*curve) plot.ConstantTicks {
	var xs []float64
	for _, c := range curves {
		for _, at := range c.points {
			xs = append(xs, at.size)
		}
	}
	slices.Sort(xs)
	var out plot.ConstantTicks
	for _, x := range slices.Compact(xs) {
		out = append(out, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	return out
}
