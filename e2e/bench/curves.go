package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// curvePoint is the duration of the measurement of each point.
const curvePoint = 3 * time.Second

// curve is a cost as a function of a size.
type curve struct {
	name    string
	ofFloor bool // of the bare server
	points  []point
}

// point is a size and the cost at it.
type point struct{ size, cost float64 }

// figure is a plot of curves.
type figure struct {
	file, title, xLabel, yLabel string
	curves                      []*curve
}

// curve returns the curve of the measured server with a name and creates it on first use.
func (f *figure) curve(name string) *curve { return f.curveOf(name, false) }

// floorCurve is curve for the floor, the server that startFloor starts.
func (f *figure) floorCurve(name string) *curve { return f.curveOf(name, true) }

// curveOf returns a curve of the floor or of the measured server.
func (f *figure) curveOf(name string, ofFloor bool) *curve {
	for _, c := range f.curves {
		if c.name == name && c.ofFloor == ofFloor {
			return c
		}
	}
	c := &curve{name: name, ofFloor: ofFloor}
	f.curves = append(f.curves, c)
	return c
}

func (c *curve) add(size, cost float64) { c.points = append(c.points, point{size, cost}) }

// String returns the figure as a table with a column for each size.
func (f *figure) String() string {
	var sizes []float64
	for _, c := range f.curves {
		for _, p := range c.points {
			sizes = append(sizes, p.size)
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	var out strings.Builder
	fmt.Fprintf(&out, "\n%s: %s\n\n| %s |", f.title, f.yLabel, f.xLabel)
	for _, x := range sizes {
		fmt.Fprintf(&out, " %g |", x)
	}
	out.WriteString("\n|" + strings.Repeat("---|", len(sizes)+1) + "\n")
	for _, c := range f.curves {
		name := c.name
		if c.ofFloor {
			name += ", floor"
		}
		out.WriteString("| " + name + " |")
		for _, x := range sizes {
			i := slices.IndexFunc(c.points, func(p point) bool { return p.size == x })
			if i < 0 {
				out.WriteString(" |")
				continue
			}
			fmt.Fprintf(&out, " %.3g |", c.points[i].cost)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// curveFunctions are the functions that measure curves, by name.
var curveFunctions = []struct {
	name string
	draw func(b *bench, like *load, largest int) ([]*figure, error)
}{
	{"objects", growObjects}, {"watchers", growWatchers}, {"replicas", growReplicas}, {"rate", growRate},
}

// drawCurves measures costs as the work grows, prints them, and draws them into a folder. names
// selects curves; none selects all. largest is the maximum number of objects.
func drawCurves(like *load, bin, plots string, largest int, names []string) error {
	for _, function := range curveFunctions {
		if len(names) > 0 && !slices.Contains(names, function.name) {
			continue
		}
		start := time.Now()
		figures, err := measureCurves(like, bin, largest, function.draw)
		if err != nil {
			return fmt.Errorf("%s: %w", function.name, err)
		}
		for _, f := range figures {
			fmt.Println(f)
			if plots != "" {
				if err := f.save(filepath.Join(plots, f.file)); err != nil {
					return err
				}
			}
		}
		fmt.Printf("%s took %.0f s\n", function.name, time.Since(start).Seconds())
	}
	return nil
}

// measureCurves runs the function of a curve with a new bench.
func measureCurves(like *load, bin string, largest int, draw func(*bench, *load, int) ([]*figure, error)) ([]*figure, error) {
	b, err := newBench(bin)
	if err != nil {
		return nil, err
	}
	defer b.close()
	l := *like
	l.duration = curvePoint
	return draw(b, &l, largest)
}

// startAPIServer starts an API server that allows everything.
func (b *bench) startAPIServer(like *load, name string, flags ...string) (*load, *process, error) {
	api, err := b.startAPIServerProcess(name,
		append(flags, "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount")...)
	if err != nil {
		return nil, nil, err
	}
	return b.newLoad(like, "apiserver", api.url, api, "admin"), api, nil
}

// startFloor starts the floor of a server.
func (b *bench) startFloor(upstream *load) (*load, *process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cert, key := b.certificateFiles("apiserver")
	p, err := startProcess(filepath.Join(b.dir, "floor.log"), self, "", "", "floor", "--upstream="+upstream.server,
		"--cert="+upstream.certFile, "--key="+upstream.keyFile, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
	if err != nil {
		return nil, nil, err
	}
	return b.newLoad(upstream, "floor", p.url, p, "admin"), p, nil
}
