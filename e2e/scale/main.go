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
	costs, custom := MeasuredCosts(), Suite{Replicas: 1, Cores: 4, Etcds: 1}
	flag.DurationVar(&costs.ReceiveWrite, "write", costs.ReceiveWrite, "CPU of a write in the replica that receives it")
	flag.DurationVar(&costs.EtcdWrite, "etcd", costs.EtcdWrite, "CPU of a write in etcd, which runs writes serially")
	flag.DurationVar(&costs.EtcdSync, "sync", costs.EtcdSync, "time to sync etcd's log (assumed)")
	flag.DurationVar(&costs.ApplyChange, "apply", costs.ApplyChange, "CPU of a change in each replica")
	flag.DurationVar(&costs.BroadDelivery, "delivery", costs.BroadDelivery, "CPU of a delivery to a broad watcher")
	flag.DurationVar(&costs.NarrowDelivery, "narrow", costs.NarrowDelivery, "CPU of a delivery to a narrow watcher")
	flag.IntVar(&custom.Objects, "objects", 0, "number of objects; 0 prints the table")
	flag.IntVar(&custom.Watchers, "watchers", 1000, "narrow watchers")
	flag.IntVar(&custom.MatchingWatchers, "matching", 3, "narrow watchers that each write matches")
	flag.IntVar(&custom.BroadWatchers, "broad", 30, "broad watchers")
	flag.IntVar(&custom.Replicas, "replicas", custom.Replicas, "number of API servers")
	flag.IntVar(&custom.Cores, "cores", custom.Cores, "cores of each API server")
	flag.IntVar(&custom.Etcds, "etcds", custom.Etcds, "etcd clusters over which writes are spread")
	flag.Float64Var(&custom.Writes, "writes", 100, "writes per second")
	flag.Parse()
	suites := Suites()
	if custom.Objects > 0 {
		custom.Name = "custom"
		suites = []Suite{custom}
	}
	fmt.Println("| suite | CPU of a replica | etcd | memory of a replica | to load it | NATS | a replica to clients | etcd's data, with history | delivery p50 / p99 |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, suite := range suites {
		figures := suite.ComputeFigures(costs)
		result := Simulate(suite, costs, 5*time.Second, 1)
		wait := fmt.Sprintf("%.1f / %.1f ms", milliseconds(result.P50), milliseconds(result.P99))
		if result.Overloaded {
			wait = "does not keep up"
		}
		fmt.Printf("| %s | %.2f of %d cores | %.0f %% of its time | %.1f GiB | %.0f s | %.0f MB/s | %.0f MB/s | %.1f, %.1f GB | %s |\n",
			suite.Name, figures.ReplicaCores, suite.Cores, 100*result.EtcdBusy, figures.ReplicaMemory/(1<<30), figures.LoadTime.Seconds(),
			figures.NATSBandwidth/1e6, figures.ClientBandwidth/1e6, figures.StoredBytes/1e9, figures.StoredBytesWithHistory/1e9, wait)
	}
}

// milliseconds converts a duration.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
