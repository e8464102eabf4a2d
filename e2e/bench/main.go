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
	settings := &load{}
	parsed := parseFlags(settings)
	if settings.server != "" {
		loadRunningServer(settings, flag.Args())
		return
	}
	for _, m := range measurements {
		if m.name == flag.Arg(0) {
			check(m.run(settings, parsed, flag.Args()[1:]))
			return
		}
	}
	for _, m := range measurements {
		if m.byDefault {
			check(m.run(settings, parsed, nil))
		}
	}
}

// parseFlags parses the command line into l and the returned options.
func parseFlags(settings *load) (parsed options) {
	flag.StringVar(&settings.server, "server", "", "URL of a running server; empty starts one")
	flag.StringVar(&settings.caFile, "ca", "", "CA file; empty skips verification")
	flag.StringVar(&settings.certFile, "cert", "", "file of the client certificate")
	flag.StringVar(&settings.keyFile, "key", "", "file of the client key")
	flag.StringVar(&settings.token, "token", "", "bearer token")
	flag.StringVar(&settings.pids, "pid", "", "comma-separated name=pid of the server processes to account")
	flag.IntVar(&settings.objectCount, "n", 10000, "number of objects")
	flag.IntVar(&settings.concurrency, "c", 16, "concurrency")
	flag.DurationVar(&settings.duration, "d", 10*time.Second, "duration of timed scenarios")
	flag.IntVar(&settings.watchers, "w", 500, "number of watchers")
	flag.IntVar(&settings.streams, "streams", 100, "watchers per connection: many like a busy client or a proxy, 1 like kubelets")
	flag.Float64Var(&settings.rate, "rate", 100, "writes per second in watch scenarios")
	flag.StringVar(&settings.label, "label", "", "label printed on every line")
	flag.StringVar(&settings.accept, "accept", "application/json", "Accept for get/list/watch")
	flag.Int64Var(&settings.randomSeed, "seed", 1, "random seed")
	flag.StringVar(&parsed.binary, "apiserver", "../bin/apiserver", "path of the API server to start")
	flag.StringVar(&parsed.plots, "plots", "", "folder for plots")
	flag.IntVar(&parsed.largest, "largest", 100000, "maximum number of objects of the curves; 300000 takes longer")
	flag.Parse()
	return parsed
}

// loadRunningServer runs scenarios against l.server, or one of the parts of the fairness
// measurement that run in a process of their own.
func loadRunningServer(settings *load, names []string) {
	switch firstOf(names) {
	case "storming":
		settings.runStorm()
		return
	case "spinning":
		occupyCPUs()
		return
	case "standing":
		check(settings.runProbeClients())
		return
	}
	if settings.label == "" {
		settings.label = filepath.Base(settings.server)
	}
	c := settings.newClient()
	for _, name := range names {
		settings.runScenario(c, name)
	}
	if len(names) == 0 {
		fmt.Fprintln(os.Stderr, "bench: name the scenarios: seed idle list list-consistent list-proto list-meta list-table list-ns list-node list-label list-storm page get get-rv0 patch watch watch-node crd custom-define custom-create custom-patch")
		os.Exit(2)
	}
}
