// Command scale estimates the behaviour of suites that are too large to run here. It uses measured
// costs of single operations, arithmetic where that suffices (model.go), and a queueing simulation
// for waiting times (simulate.go). It measures nothing.
//
//	scale                       several suites; docs/user/sizing.md has an extract
//	scale -objects=… -writes=…  one suite with the given parameters
//
// The costs are flags, so that the costs of another machine can be used.
package main

import (
	"flag"
	"fmt"
	"time"
)

func main() {
	u, own := Measured(), Suite{Replicas: 1, Cores: 4, Etcds: 1}
	flag.DurationVar(&u.Write, "write", u.Write, "CPU of a write in the replica that receives it")
	flag.DurationVar(&u.Etcd, "etcd", u.Etcd, "CPU of a write in etcd, which runs writes serially")
	flag.DurationVar(&u.Sync, "sync", u.Sync, "time to sync etcd's log (assumed)")
	flag.DurationVar(&u.Apply, "apply", u.Apply, "CPU of a change in each replica")
	flag.DurationVar(&u.Delivery, "delivery", u.Delivery, "CPU of a delivery to a broad watcher")
	flag.DurationVar(&u.Narrow, "narrow", u.Narrow, "CPU of a delivery to a narrow watcher")
	flag.IntVar(&own.Objects, "objects", 0, "number of objects; 0 prints the table")
	flag.IntVar(&own.Watchers, "watchers", 1000, "narrow watchers")
	flag.IntVar(&own.Matching, "matching", 3, "narrow watchers that each write matches")
	flag.IntVar(&own.Broad, "broad", 30, "broad watchers")
	flag.IntVar(&own.Replicas, "replicas", own.Replicas, "number of API servers")
	flag.IntVar(&own.Cores, "cores", own.Cores, "cores of each API server")
	flag.IntVar(&own.Etcds, "etcds", own.Etcds, "etcd clusters over which writes are spread")
	flag.Float64Var(&own.Writes, "writes", 100, "writes per second")
	flag.Parse()
	suites := Suites()
	if own.Objects > 0 {
		own.Name = "custom"
		suites = []Suite{own}
	}
	fmt.Println("| suite | CPU of a replica | etcd | memory of a replica | to load it | NATS | a replica to clients | etcd's data, with history | delivery p50 / p99 |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, s := range suites {
		f := s.Computed(u)
		r := Simulate(s, u, 5*time.Second, 1)
		wait := fmt.Sprintf("%.1f / %.1f ms", ms(r.P50), ms(r.P99))
		if r.Behind {
			wait = "does not keep up"
		}
		fmt.Printf("| %s | %.2f of %d cores | %.0f %% of its time | %.1f GiB | %.0f s | %.0f MB/s | %.0f MB/s | %.1f, %.1f GB | %s |\n",
			s.Name, f.ReplicaCores, s.Cores, 100*r.EtcdBusy, f.ReplicaMemory/(1<<30), f.Load.Seconds(), f.NATS/1e6, f.Clients/1e6, f.Stored/1e9, f.WithHistory/1e9, wait)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
