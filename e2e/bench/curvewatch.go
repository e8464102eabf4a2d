package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// watchersPerObject is the number of narrow watchers that each write matches.
	watchersPerObject = 10
	// maxBroadWatchers is the maximum number of broad watchers, and the number of pods. More broad
	// watchers cost the same per delivery.
	maxBroadWatchers = 1000
	// overloadedP99 is the p99 of deliveries in ms above which a server does not keep up.
	overloadedP99 = 1000
)

// A watchRun is one measurement of growWatchers: watchers of one kind, and the writes that they see.
type watchRun struct {
	name     string           // of the measurement
	curve    string           // name of the curve that gets the result
	path     func(int) string // returns the watch path of the watcher with an index
	watchers int
	objects  int // number of objects that the writes change in turn
	rate     float64
}

// narrowRun returns a run of watchers of one object each. There are fewer objects than watchers, so
// each write matches watchersPerObject watchers.
func narrowRun(watchers int) watchRun {
	return watchRun{
		name:  fmt.Sprintf("%d of an object each, a write matching %d", watchers, watchersPerObject),
		curve: fmt.Sprintf("of one object each, a write matching %d", watchersPerObject),
		path: func(w int) string {
			return fmt.Sprintf("/api/v1/pods?watch=1&fieldSelector=metadata.name%%3Dpod-%05d", w/watchersPerObject)
		},
		watchers: watchers,
		objects:  watchers / watchersPerObject,
		rate:     50,
	}
}

// broadRun returns a run of watchers of all objects. The rate falls with their number so that the
// server delivers about 2000 events a second, which it can do without delay.
func broadRun(watchers int) watchRun {
	return watchRun{
		name:     fmt.Sprintf("%d of all", watchers),
		curve:    "of everything",
		path:     func(int) string { return "/api/v1/pods?watch=1" },
		watchers: watchers,
		objects:  maxBroadWatchers,
		rate:     max(5, 2000/float64(watchers)),
	}
}

// growWatchers writes while the number of watchers grows: narrow watchers of one object, with a
// constant number per write, and broad watchers of all objects.
func growWatchers(env *bench, like *load, _ int) ([]*figure, error) {
	cost := &figure{
		file:   "curve-watchers.svg",
		title:  "CPU of a delivery by number of watchers",
		xLabel: "watchers",
		yLabel: "CPU µs a delivery",
	}
	running, api, err := env.startAPIServer(like, "watchers")
	if err != nil {
		return nil, err
	}
	defer api.terminate()
	running.objectCount = maxBroadWatchers
	running.runScenario(running.newClient(), "seed")
	floorLoad, floor, err := env.startFloor(running)
	if err != nil {
		return nil, err
	}
	defer floor.terminate()

	for _, watchers := range []int{100, 1000, 10000} {
		runs := []watchRun{narrowRun(watchers)}
		if watchers <= maxBroadWatchers {
			runs = append(runs, broadRun(watchers))
		}
		for _, run := range runs {
			for _, side := range []*load{running, floorLoad} {
				s := *side
				s.results, s.objectCount, s.watchers, s.rate = nil, run.objects, run.watchers, run.rate
				c := s.newClient()
				s.measureWatches(c, run.name, watchedPods(), run.path)
				c.CloseIdleConnections()
				cost.curveOf(run.curve, side == floorLoad).add(float64(watchers), s.lastResult("cpu_s_per_million_deliveries"))
			}
		}
	}
	return []*figure{cost}, nil
}

// growRate increases the rate of writes until deliveries are too slow.
func growRate(env *bench, like *load, _ int) ([]*figure, error) {
	late := &figure{
		file:   "curve-rate.svg",
		title:  "100 watchers of everything, by rate of writes",
		xLabel: "writes/s",
		yLabel: "latency from the write to the watcher, ms",
	}
	cost := &figure{
		file:   "curve-rate-cpu.svg",
		title:  "100 watchers of everything, by rate of writes",
		xLabel: "writes/s",
		yLabel: "CPU µs a delivery, with its share of the write",
	}
	running, api, err := env.startAPIServer(like, "rate")
	if err != nil {
		return nil, err
	}
	defer api.terminate()
	running.objectCount, running.watchers = 1000, 100
	running.runScenario(running.newClient(), "seed")
	floorLoad, floor, err := env.startFloor(running)
	if err != nil {
		return nil, err
	}
	defer floor.terminate()
	for _, side := range []*load{running, floorLoad} {
		for rate := 10.0; rate <= 3200; rate *= 2 {
			s := *side
			s.results, s.rate = nil, rate
			c := s.newClient()
			s.measureWatches(c, fmt.Sprintf("%g writes/s", rate), watchedPods(), func(int) string {
				return "/api/v1/pods?watch=1"
			})
			c.CloseIdleConnections()
			late.curveOf("p99", side == floorLoad).add(rate, s.lastResult("p99_ms"))
			late.curveOf("p50", side == floorLoad).add(rate, s.lastResult("p50_ms"))
			cost.curveOf("a delivery", side == floorLoad).add(rate, s.lastResult("cpu_s_per_million_deliveries"))
			if s.lastResult("p99_ms") > overloadedP99 {
				break
			}
		}
	}
	return []*figure{late, cost}, nil
}

// growReplicas distributes watchers and writes over a growing number of replicas with one etcd and
// one NATS server.
func growReplicas(env *bench, like *load, _ int) ([]*figure, error) {
	const shared = 1500 // watchers on 15 connections, which divide evenly over the replicas
	write := &figure{
		file:   "curve-replicas.svg",
		title:  "CPU of all processes per write, without watchers",
		xLabel: "replicas",
		yLabel: "CPU ms a write",
	}
	delivery := &figure{
		file:   "curve-replicas-watch.svg",
		title:  fmt.Sprintf("%d watchers of everything, shared by the replicas", shared),
		xLabel: "replicas",
		yLabel: "CPU µs a delivery",
	}
	for _, name := range []string{"etcd", "nats-server"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(env.bin, name), "./cmd/"+name).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	for _, replicas := range []int{1, 3, 5} {
		if err := env.measureReplicas(like, replicas, shared, write, delivery); err != nil {
			return nil, err
		}
	}
	return []*figure{write, delivery}, nil
}

// measureReplicas starts a number of replicas with one etcd and one NATS server, and adds the cost
// of writes and of deliveries to the figures.
func (b *bench) measureReplicas(like *load, replicas, watchers int, write, delivery *figure) error {
	// 1. Start etcd, the NATS server and the replicas, and create the pods.
	running, members, err := b.startReplicas(like, replicas)
	defer func() {
		for _, m := range slices.Backward(members) {
			m.terminate()
		}
	}()
	if err != nil {
		return err
	}
	running.objectCount = 1000
	client := running.newClient()
	running.runScenario(client, "seed")

	// 2. Patch without watchers. All writes go to replica 0; the others only follow.
	x := float64(replicas)
	running.concurrency = 4
	running.runScenario(client, "patch")
	write.curve("all processes").add(x, running.lastResult("cpu_ms_per_op"))
	ops, _ := running.results[len(running.results)-1]["ops"].(int)
	msPerWrite := func(process string) float64 {
		return running.lastResult("cpu_s_"+process) * 1000 / float64(max(ops, 1))
	}
	write.curve("etcd").add(x, msPerWrite("etcd"))
	write.curve("NATS").add(x, msPerWrite("nats"))
	write.curve("the replica that serves the write").add(x, msPerWrite("replica-0"))
	others := 0.0
	for i := 1; i < replicas; i++ {
		others += msPerWrite(fmt.Sprintf("replica-%d", i)) / float64(replicas-1)
	}
	write.curve("each other replica").add(x, others)

	// 3. Write slowly while watchers, distributed over the replicas, receive each write.
	running.watchers, running.rate = watchers, 5
	running.runScenario(client, "watch")
	delivery.curve("all processes").add(x, running.lastResult("cpu_s_per_million_deliveries"))

	// 4. Compare with one floor that has all watchers.
	floorLoad, floor, err := b.startFloor(running)
	if err != nil {
		return err
	}
	defer floor.terminate()
	floorLoad.replicas = nil
	floorLoad.runScenario(floorLoad.newClient(), "watch")
	delivery.floorCurve("all processes").add(x, floorLoad.lastResult("cpu_s_per_million_deliveries"))
	return nil
}

// startReplicas starts an etcd, a NATS server and API servers that share them. It returns a load of
// the first replica that measures all processes, and the processes. If it fails, the processes are
// those that have been started.
func (b *bench) startReplicas(like *load, replicas int) (_ *load, started []*process, err error) {
	// 1. Start etcd and the NATS server.
	var clientPort, peerPort, natsPort int
	for _, port := range []*int{&clientPort, &peerPort, &natsPort} {
		if *port, err = freePort(); err != nil {
			return nil, nil, err
		}
	}
	name := fmt.Sprintf("replicas-%d", replicas)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", clientPort), fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	etcd, err := b.startMember(name+"-etcd", "etcd", clientPort, "--name=b", "--data-dir="+filepath.Join(b.dir, name),
		"--log-level=warn", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=b="+peer)
	if err != nil {
		return nil, nil, err
	}
	started = append(started, etcd)
	nats, err := b.startMember(name+"-nats", "nats-server", natsPort, "--addr=127.0.0.1",
		fmt.Sprintf("--port=%d", natsPort))
	if err != nil {
		return nil, started, err
	}
	started = append(started, nats)

	// 2. Start the replicas.
	var first *load
	var urls []string
	pids := []string{fmt.Sprintf("etcd=%d", etcd.cmd.Process.Pid), fmt.Sprintf("nats=%d", nats.cmd.Process.Pid)}
	for i := range replicas {
		l, api, err := b.startAPIServer(like, fmt.Sprintf("%s-%d", name, i), "--etcd-servers="+client,
			fmt.Sprintf("--nats-servers=nats://127.0.0.1:%d", natsPort), "--cluster-id=bench")
		if err != nil {
			return nil, started, err
		}
		started = append(started, api)
		pids = append(pids, fmt.Sprintf("replica-%d=%d", i, api.cmd.Process.Pid))
		urls = append(urls, l.server)
		if first == nil {
			first = l
		}
	}
	first.replicas, first.pids = append(first.replicas, urls...), strings.Join(pids, ",")
	return first, started, nil
}

// startMember starts etcd or NATS and waits until it accepts connections.
func (b *bench) startMember(name, program string, port int, args ...string) (*process, error) {
	out, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(filepath.Join(b.bin, program), args...)}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := waitForListener(port); err != nil {
		p.terminate()
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return p, nil
}
