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
	drawing := plot.New()
	drawing.Title.Text = "From 5 s to 25 s: " + title
	drawing.X.Label.Text, drawing.Y.Label.Text = "time [s]", "latency [ms]"
	drawing.Y.Scale, drawing.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	drawing.Y.Min, drawing.Y.Max = 0.5, 10000
	drawing.Legend.Top = true
	for i, client := range probeClients {
		var points, rejected plotter.XYs
		for _, a := range responses[client.name] {
			at := plotter.XY{X: a.At.Seconds(), Y: max(float64(a.Latency.Microseconds())/1000, drawing.Y.Min)}
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
		drawing.Add(line)
		drawing.Legend.Add(client.name, line)
		if len(rejected) == 0 {
			continue
		}
		marks, err := plotter.NewScatter(rejected)
		if err != nil {
			return err
		}
		marks.Color, marks.Shape = plotutil.Color(i), plotutil.Shape(5)
		drawing.Add(marks)
		drawing.Legend.Add(client.name+", rejected", marks)
	}
	return drawing.Save(22*vg.Centimeter, 11*vg.Centimeter, file)
}
