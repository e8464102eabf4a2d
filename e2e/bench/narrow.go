package main

import (
	"fmt"
	"os"
	"time"
)

// measureNarrowWatchers measures watchers by node, where each write matches one in a hundred, and
// the floor. A profile of the server is written to a file unless that is "".
func measureNarrowWatchers(l *load, bin, profile string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	ours, api, err := b.startAPIServer(l, "narrow")
	if err != nil {
		return err
	}
	defer api.terminate()
	ours.runScenario(ours.newClient(), "seed")
	bare, floor, err := b.startFloor(ours)
	if err != nil {
		return err
	}
	defer floor.terminate()
	profiled := make(chan error, 1)
	go func() { profiled <- ours.writeProfile(profile) }()
	fmt.Print("| | deliveries | CPU ms a write | a delivery | p50 ms | p99 ms | KiB a watcher | peak MiB |\n|---|---|---|---|---|---|---|---|\n")
	for _, side := range []*load{ours, bare} {
		side.runScenario(side.newClient(), "watch-node")
		fmt.Printf("| %s | %v | %v | %v | %v | %v | %v | %v |\n", side.label, resultCell(*side, "ops"),
			resultCell(*side, "cpu_ms_per_write"), resultCell(*side, "cpu_ms_per_op"), resultCell(*side, "p50_ms"),
			resultCell(*side, "p99_ms"), resultCell(*side, "kib_per_watcher"), resultCell(*side, "peak_mib_"+side.label))
	}
	return <-profiled
}

// writeProfile writes a CPU profile of the server from now on.
func (l *load) writeProfile(file string) error {
	if file == "" {
		return nil
	}
	seconds := (l.duration + 5*time.Second).Seconds()
	_, body, err := l.request(l.newClient(), "GET", fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", seconds), "", nil, "*/*")
	if err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o644)
}
