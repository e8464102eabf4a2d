package main

import (
	"net/http"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// drawStorm draws the latency of each response over the time of the request.
func drawStorm(file, title string, responses map[string][]probeResponse) error {
	p := plot.New()
	p.Title.Text = "From 5 s to 25 s: " + title
	p.X.Label.Text, p.Y.Label.Text = "time [s]", "latency [ms]"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0.5, 10000
	p.Legend.Top = true
	for i, b := range probeClients {
		var points, rejected plotter.XYs
		for _, a := range responses[b.name] {
			at := plotter.XY{X: a.At.Seconds(), Y: max(float64(a.Latency.Microseconds())/1000, p.Y.Min)}
			points = append(points, at)
			if a.Code != http.StatusOK {
				rejected = append(rejected, at)
			}
		}
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(0.7)
		p.Add(line)
		p.Legend.Add(b.name, line)
		if len(rejected) == 0 {
			continue
		}
		marks, err := plotter.NewScatter(rejected)
		if err != nil {
			return err
		}
		marks.Color, marks.Shape = plotutil.Color(i), plotutil.Shape(5)
		p.Add(marks)
		p.Legend.Add(b.name+", rejected", marks)
	}
	return p.Save(22*vg.Centimeter, 11*vg.Centimeter, file)
}
