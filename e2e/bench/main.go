package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"binnacle/e2e/bench/dashboard"
)

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
	flag.StringVar(&l.server, "server", "", "URL of a running server; empty starts one")
	flag.StringVar(&l.caFile, "ca", "", "CA file; empty skips verification")
	flag.StringVar(&l.certFile, "cert", "", "file of the client certificate")
	flag.StringVar(&l.keyFile, "key", "", "file of the client key")
	flag.StringVar(&l.token, "token", "", "bearer token")
	flag.StringVar(&l.pids, "pid", "", "comma-separated name=pid of the server processes to account")
	flag.IntVar(&l.n, "n", 10000, "number of objects")
	flag.IntVar(&l.conc, "c", 16, "concurrency")
	flag.DurationVar(&l.dur, "d", 10*time.Second, "duration of timed scenarios")
	flag.IntVar(&l.watchers, "w", 500, "number of watchers")
	flag.IntVar(&l.streams, "streams", 100, "watchers per connection: many like a busy client or a proxy, 1 like kubelets")
	flag.Float64Var(&l.rate, "rate", 100, "writes per second in watch scenarios")
	flag.StringVar(&l.label, "label", "", "label printed on every line")
	flag.StringVar(&l.accept, "accept", "application/json", "Accept for get/list/watch")
	flag.Int64Var(&l.seedN, "seed", 1, "random seed")
	binary := flag.String("apiserver", "../bin/apiserver", "path of the API server to start")
	plots := flag.String("plots", "", "folder for plots")
	largest := flag.Int("largest", 100000, "maximum number of objects of the curves; 300000 takes longer")
	flag.Parse()
	switch {
	case l.server != "" && flag.Arg(0) == "storming":
		l.storming()
		return
	case l.server != "" && flag.Arg(0) == "spinning":
		spinning()
		return
	case l.server != "" && flag.Arg(0) == "standing":
		check(l.standing())
		return
	case l.server != "":
	case flag.Arg(0) == "compare":
		check(compare(l, *binary))
		return
	case flag.Arg(0) == "fairness":
		check(fairness(l, filepath.Dir(*binary), *plots, flag.Args()[1:]))
		return
	case flag.Arg(0) == "curves":
		check(curves(l, filepath.Dir(*binary), *plots, *largest, flag.Args()[1:]))
		return
	case flag.Arg(0) == "narrow":
		check(narrow(l, filepath.Dir(*binary), flag.Arg(1)))
		return
	case flag.Arg(0) == "soak":
		check(soak(l, filepath.Dir(*binary), *plots))
		return
	case flag.Arg(0) == "access":
		check(access(l, filepath.Dir(*binary)))
		return
	case flag.Arg(0) == "admission":
		check(admitted(l, filepath.Dir(*binary)))
		return
	case flag.Arg(0) == "audit":
		check(audited(l, filepath.Dir(*binary)))
		return
	case flag.Arg(0) == "policies":
		check(policed(l, filepath.Dir(*binary)))
		return
	case flag.Arg(0) == "custom":
		check(custom(l, filepath.Dir(*binary)))
		return
	case flag.Arg(0) == "controllers":
		check(managed(l, filepath.Dir(*binary), flag.Arg(1)))
		return
	case flag.Arg(0) == "restart":
		check(restarted(l, filepath.Dir(*binary), flag.Arg(1)))
		return
	case flag.Arg(0) == "definitions":
		check(definitions(l, filepath.Dir(*binary)))
		return
	default:
		check(compare(l, *binary))
		check(access(l, filepath.Dir(*binary)))
		check(admitted(l, filepath.Dir(*binary)))
		check(policed(l, filepath.Dir(*binary)))
		check(custom(l, filepath.Dir(*binary)))
		check(definitions(l, filepath.Dir(*binary)))
		check(fairness(l, filepath.Dir(*binary), *plots, nil))
		check(curves(l, filepath.Dir(*binary), *plots, *largest, nil))
		return
	}
	if l.label == "" {
		l.label = filepath.Base(l.server)
	}
	c := l.newClient()
	for _, s := range flag.Args() {
		l.run(c, s)
	}
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "bench: name the scenarios: seed idle list list-consistent list-proto list-meta list-table list-ns list-node list-label list-storm page get get-rv0 patch watch watch-node crd custom-define custom-create custom-patch")
		os.Exit(2)
	}
}
