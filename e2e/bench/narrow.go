package main

import (
	"fmt"
	"os"
	"time"
)

// narrow measures watchers by node, where each write matches one in a hundred, and the floor. A
// profile of the server is written to a file unless that is "".
func narrow(l *load, bin, profile string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	ours, api, err := b.startAPIServer(l, "narrow")
	if err != nil {
		return err
	}
	defer api.stop()
	ours.run(ours.newClient(), "seed")
	bare, floor, err := b.startFloor(ours)
	if err != nil {
		return err
	}
	defer floor.stop()
	profiled := make(chan error, 1)
	go func() { profiled <- ours.profile(profile) }()
	fmt.Print("| | deliveries | CPU ms a write | a delivery | p50 ms | p99 ms | KiB a watcher | peak MiB |\n|---|---|---|---|---|---|---|---|\n")
	for _, side := range []*load{ours, bare} {
		side.run(side.newClient(), "watch-node")
		fmt.Printf("| %s | %v | %v | %v | %v | %v | %v | %v |\n", side.label, cell(*side, "ops"), cell(*side, "cpu_ms_per_write"), cell(*side, "cpu_ms_per_op"), cell(*side, "p50_ms"), cell(*side, "p99_ms"), cell(*side, "kib_per_watcher"), cell(*side, "peak_mib_"+side.label))
	}
	return <-profiled
}

// profile writes a CPU profile of the server from now on.
func (l *load) profile(file string) error {
	if file == "" {
		return nil
	}
	seconds := (l.dur + 5*time.Second).Seconds()
	_, body, err := l.request(l.newClient(), "GET", fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", seconds), "", nil, "*/*")
	if err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o644)
}
