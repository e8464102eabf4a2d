package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// sampleEvery is the interval of samples, reportEvery that of printed rows.
const (
	sampleEvery = 15 * time.Second
	reportEvery = 5 * time.Minute
)

// sample is the memory of a server some time after the start.
type sample struct {
	elapsed                   time.Duration
	resident, anonymous, heap float64 // MiB
	goroutines                float64
}

// runSoak reports whether the memory of a server grows over a long time (-d). It runs the scenario
// watch-node: watchers of the pods of one node each (-w, -streams), while other clients write
// (-rate). The curve is written to soak.svg in plots, unless plots is empty.
func runSoak(settings *load, bin, plots string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	ours, api, err := b.startAPIServer(settings, "soak")
	if err != nil {
		return err
	}
	defer api.terminate()
	ours.runScenario(ours.newClient(), "seed")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sampled := make(chan []sample, 1)
	go func() { sampled <- ours.takeSamples(ctx) }()
	ours.runScenario(ours.newClient(), "watch-node")
	cancel()
	samples := <-sampled
	if plots == "" {
		return nil
	}
	return drawSoak(filepath.Join(plots, "soak.svg"),
		fmt.Sprintf("%d watchers by node, %.0f writes a second", settings.watchers, settings.rate), samples)
}

// takeSamples takes samples until ctx ends.
func (l *load) takeSamples(ctx context.Context) (out []sample) {
	client := l.newClient()
	fmt.Print("| min | resident MiB | anonymous | heap in use | goroutines |\n|---|---|---|---|---|\n")
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	start := time.Now()
	for reported := time.Duration(-reportEvery); ; { // report the first sample
		select {
		case <-ctx.Done():
			return out
		case <-tick.C:
		}
		s, err := l.takeSample(client)
		if err != nil {
			fmt.Println("sample failed:", err)
			continue
		}
		s.elapsed = time.Since(start)
		if out = append(out, s); s.elapsed-reported >= reportEvery {
			reported = s.elapsed
			fmt.Printf("| %.0f | %.0f | %.0f | %.0f | %.0f |\n", s.elapsed.Minutes(), s.resident, s.anonymous, s.heap, s.goroutines)
		}
	}
}

// takeSample reads the memory of the server and its number of goroutines.
func (l *load) takeSample(client *http.Client) (taken sample, err error) {
	code, body, err := l.request(client, "GET", "/metrics", "", nil, "*/*")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("metrics: %d", code)
	}
	if err != nil {
		return taken, err
	}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_memstats_heap_inuse_bytes":
			taken.heap = v / (1 << 20)
		case "go_goroutines":
			taken.goroutines = v
		}
	}
	u := l.readUsage()
	taken.resident, taken.anonymous = u.resident[l.label], u.anonymous[l.label]
	return taken, nil
}

// drawSoak draws the memory of the server by minute.
func drawSoak(file, title string, samples []sample) error {
	drawing := plot.New()
	drawing.Title.Text, drawing.X.Label.Text, drawing.Y.Label.Text = title, "min", "MiB"
	drawing.Legend.Left = true
	drawing.Add(plotter.NewGrid())
	for i, series := range []struct {
		name  string
		value func(sample) float64
	}{
		{"resident", func(s sample) float64 { return s.resident }},
		{"without pages of files", func(s sample) float64 { return s.anonymous }},
		{"heap in use", func(s sample) float64 { return s.heap }},
	} {
		var points plotter.XYs
		for _, s := range samples {
			points = append(points, plotter.XY{X: s.elapsed.Minutes(), Y: series.value(s)})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.2)
		drawing.Add(line)
		drawing.Legend.Add(series.name, line)
	}
	drawing.Y.Min = 0
	return drawing.Save(20*vg.Centimeter, 10*vg.Centimeter, file)
}
