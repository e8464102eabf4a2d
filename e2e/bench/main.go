package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"binnacle/e2e/bench/dashboard"
)

// options are the flags of the measurements that start their own servers.
type options struct {
	binary  string // file of the API server; other programs are in the same folder
	plots   string // folder for plots, or empty
	largest int    // maximum number of objects of the curves
}

// programs returns the folder of the programs.
func (o options) programs() string { return filepath.Dir(o.binary) }

// measurements start their own servers. Those with byDefault run in this order if the command line
// names none.
var measurements = []struct {
	name      string
	byDefault bool
	run       func(l *load, o options, args []string) error
}{
	{"compare", true, func(l *load, o options, _ []string) error { return compareWithFloor(l, o.binary) }},
	{"access", true, func(l *load, o options, _ []string) error { return measureAccess(l, o.programs()) }},
	{"admission", true, func(l *load, o options, _ []string) error { return measureAdmission(l, o.programs()) }},
	{"policies", true, func(l *load, o options, _ []string) error { return measurePolicies(l, o.programs()) }},
	{"custom", true, func(l *load, o options, _ []string) error { return compareCustomResources(l, o.programs()) }},
	{"definitions", true, func(l *load, o options, _ []string) error { return measureManyDefinitions(l, o.programs()) }},
	{"fairness", true, func(l *load, o options, args []string) error { return compareFairness(l, o.programs(), o.plots, args) }},
	{"curves", true, func(l *load, o options, args []string) error {
		return drawCurves(l, o.programs(), o.plots, o.largest, args)
	}},
	{"audit", false, func(l *load, o options, _ []string) error { return measureAudit(l, o.programs()) }},
	{"narrow", false, func(l *load, o options, args []string) error {
		return measureNarrowWatchers(l, o.programs(), firstOf(args))
	}},
	{"soak", false, func(l *load, o options, _ []string) error { return runSoak(l, o.programs(), o.plots) }},
	{"controllers", false, func(l *load, o options, args []string) error {
		return measureControllers(l, o.programs(), firstOf(args))
	}},
	{"restart", false, func(l *load, o options, args []string) error { return measureRestarts(l, o.programs(), firstOf(args)) }},
}

// firstOf returns the first argument, or "".
func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "floor" {
		check(serveFloor(os.Args[2:]))
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "dashboard" {
		check(dashboard.Run(os.Args[2:], os.Stdout))
		return
	}
	l := &load{}
	o := parseFlags(l)
	if l.server != "" {
		loadRunningServer(l, flag.Args())
		return
	}
	for _, m := range measurements {
		if m.name == flag.Arg(0) {
			check(m.run(l, o, flag.Args()[1:]))
			return
		}
	}
	for _, m := range measurements {
		if m.byDefault {
			check(m.run(l, o, nil))
		}
	}
}

// parseFlags parses the command line into l and the returned options.
func parseFlags(l *load) (o options) {
	flag.StringVar(&l.server, "server", "", "URL of a running server; empty starts one")
	flag.StringVar(&l.caFile, "ca", "", "CA file; empty skips verification")
	flag.StringVar(&l.certFile, "cert", "", "file of the client certificate")
	flag.StringVar(&l.keyFile, "key", "", "file of the client key")
	flag.StringVar(&l.token, "token", "", "bearer token")
	flag.StringVar(&l.pids, "pid", "", "comma-separated name=pid of the server processes to account")
	flag.IntVar(&l.objectCount, "n", 10000, "number of objects")
	flag.IntVar(&l.concurrency, "c", 16, "concurrency")
	flag.DurationVar(&l.duration, "d", 10*time.Second, "duration of timed scenarios")
	flag.IntVar(&l.watchers, "w", 500, "number of watchers")
	flag.IntVar(&l.streams, "streams", 100, "watchers per connection: many like a busy client or a proxy, 1 like kubelets")
	flag.Float64Var(&l.rate, "rate", 100, "writes per second in watch scenarios")
	flag.StringVar(&l.label, "label", "", "label printed on every line")
	flag.StringVar(&l.accept, "accept", "application/json", "Accept for get/list/watch")
	flag.Int64Var(&l.randomSeed, "seed", 1, "random seed")
	flag.StringVar(&o.binary, "apiserver", "../bin/apiserver", "path of the API server to start")
	flag.StringVar(&o.plots, "plots", "", "folder for plots")
	flag.IntVar(&o.largest, "largest", 100000, "maximum number of objects of the curves; 300000 takes longer")
	flag.Parse()
	return o
}

// loadRunningServer runs scenarios against l.server, or one of the parts of the fairness
// measurement that run in a process of their own.
func loadRunningServer(l *load, names []string) {
	switch firstOf(names) {
	case "storming":
		l.runStorm()
		return
	case "spinning":
		occupyCPUs()
		return
	case "standing":
		check(l.runProbeClients())
		return
	}
	if l.label == "" {
		l.label = filepath.Base(l.server)
	}
	c := l.newClient()
	for _, name := range names {
		l.runScenario(c, name)
	}
	if len(names) == 0 {
		fmt.Fprintln(os.Stderr, "bench: name the scenarios: seed idle list list-consistent list-proto list-meta list-table list-ns list-node list-label list-storm page get get-rv0 patch watch watch-node crd custom-define custom-create custom-patch")
		os.Exit(2)
	}
}
