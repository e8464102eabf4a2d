package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// watchersPerObject is the number of narrow watchers that each write matches.
	watchersPerObject = 10
	// maxBroadWatchers is the maximum number of broad watchers. The cost of each is constant beyond
	// it.
	maxBroadWatchers = 1000
	// overloadedP99 is the p99 of deliveries in ms above which a server does not keep up.
	overloadedP99 = 1000
)

// growWatchers writes while the number of watchers grows: narrow watchers of one object, with a
// constant number per write, and broad watchers of all objects.
func growWatchers(b *bench, like *load, _ int) ([]*figure, error) {
	cost := &figure{
		file:  "curve-watchers.svg",
		title: "CPU of a delivery by number of watchers",
		x:     "watchers",
		y:     "CPU µs a delivery",
	}
	l, api, err := b.startAPIServer(like, "watchers")
	if err != nil {
		return nil, err
	}
	defer api.terminate()
	l.objectCount = maxBroadWatchers
	l.runScenario(l.newClient(), "seed")
	bare, floor, err := b.startFloor(l)
	if err != nil {
		return nil, err
	}
	defer floor.terminate()
	for _, w := range []int{100, 1000, 10000} {
		for _, narrow := range []bool{true, false} {
			name, key := fmt.Sprintf("%d of an object each, a write matching %d", w,
				watchersPerObject), fmt.Sprintf("of one object each, a write matching %d", watchersPerObject)
			path := func(w int) string {
				return fmt.Sprintf("/api/v1/pods?watch=1&fieldSelector=metadata.name%%3Dpod-%05d", w/watchersPerObject)
			}
			n, rate := w/watchersPerObject, 50.0
			if !narrow {
				if w > maxBroadWatchers {
					continue
				}
				name, key = fmt.Sprintf("%d of all", w), "of everything"
				path = func(int) string { return "/api/v1/pods?watch=1" }
				n, rate = maxBroadWatchers, max(5, 2000/float64(w))
			}
			for _, side := range []*load{l, bare} {
				s := *side
				s.results, s.objectCount, s.watchers, s.rate = nil, n, w, rate
				c := s.newClient()
				s.measureWatches(c, name, watchedPods(), path)
				c.CloseIdleConnections()
				cost.curve(key, side == bare).add(float64(w), s.lastResult("cpu_s_per_million_deliveries"))
			}
		}
	}
	return []*figure{cost}, nil
}

// growRate increases the rate of writes until deliveries are too slow.
func growRate(b *bench, like *load, _ int) ([]*figure, error) {
	late := &figure{
		file:  "curve-rate.svg",
		title: "100 watchers of everything, by rate of writes",
		x:     "writes/s",
		y:     "latency from the write to the watcher, ms",
	}
	cost := &figure{
		file:  "curve-rate-cpu.svg",
		title: "100 watchers of everything, by rate of writes",
		x:     "writes/s",
		y:     "CPU µs a delivery, with its share of the write",
	}
	l, api, err := b.startAPIServer(like, "rate")
	if err != nil {
		return nil, err
	}
	defer api.terminate()
	l.objectCount, l.watchers = 1000, 100
	l.runScenario(l.newClient(), "seed")
	bare, floor, err := b.startFloor(l)
	if err != nil {
		return nil, err
	}
	defer floor.terminate()
	for _, side := range []*load{l, bare} {
		for rate := 10.0; rate <= 3200; rate *= 2 {
			s := *side
			s.results, s.rate = nil, rate
			c := s.newClient()
			s.measureWatches(c, fmt.Sprintf("%g writes/s", rate), watchedPods(), func(int) string {
				return "/api/v1/pods?watch=1"
			})
			c.CloseIdleConnections()
			late.curve("p99", side == bare).add(rate, s.lastResult("p99_ms"))
			late.curve("p50", side == bare).add(rate, s.lastResult("p50_ms"))
			cost.curve("a delivery", side == bare).add(rate, s.lastResult("cpu_s_per_million_deliveries"))
			if s.lastResult("p99_ms") > overloadedP99 {
				break
			}
		}
	}
	return []*figure{late, cost}, nil
}

// growReplicas distributes watchers and writes over a growing number of replicas with one etcd and
// one NATS server.
func growReplicas(b *bench, like *load, _ int) ([]*figure, error) {
	const shared = 1500 // watchers on 15 connections, which divide evenly over the replicas
	write := &figure{
		file:  "curve-replicas.svg",
		title: "CPU of all processes per write, without watchers",
		x:     "replicas",
		y:     "CPU ms a write",
	}
	delivery := &figure{
		file:  "curve-replicas-watch.svg",
		title: fmt.Sprintf("%d watchers of everything, shared by the replicas", shared),
		x:     "replicas",
		y:     "CPU µs a delivery",
	}
	for _, name := range []string{"etcd", "nats-server"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(b.bin, name), "./cmd/"+name).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	for _, replicas := range []int{1, 3, 5} {
		if err := b.measureReplicas(like, replicas, shared, write, delivery); err != nil {
			return nil, err
		}
	}
	return []*figure{write, delivery}, nil
}

// measureReplicas starts a number of replicas with one etcd and one NATS server, and adds the cost
// of writes and of deliveries to the figures.
func (b *bench) measureReplicas(like *load, replicas, watchers int, write, delivery *figure) error {
	ports := make([]int, 3)
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("replicas-%d", replicas)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	etcd, err := b.startMember(name+"-etcd", "etcd", ports[0], "--name=b", "--data-dir="+filepath.Join(b.dir, name),
		"--log-level=warn", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=b="+peer)
	if err != nil {
		return err
	}
	defer etcd.terminate()
	nats, err := b.startMember(name+"-nats", "nats-server", ports[2], "--addr=127.0.0.1", fmt.Sprintf("--port=%d", ports[2]))
	if err != nil {
		return err
	}
	defer nats.terminate()
	var l *load
	pids := []string{fmt.Sprintf("etcd=%d", etcd.cmd.Process.Pid), fmt.Sprintf("nats=%d", nats.cmd.Process.Pid)}
	for i := range replicas {
		r, api, err := b.startAPIServer(like, fmt.Sprintf("%s-%d", name, i), "--etcd-servers="+client,
			fmt.Sprintf("--nats-servers=nats://127.0.0.1:%d", ports[2]), "--cluster-id=bench")
		if err != nil {
			return err
		}
		defer api.terminate()
		pids = append(pids, fmt.Sprintf("replica-%d=%d", i, api.cmd.Process.Pid))
		if l == nil {
			l = r
		}
		l.replicas = append(l.replicas, r.server)
	}
	l.pids, l.objectCount = strings.Join(pids, ","), 1000
	c := l.newClient()
	l.runScenario(c, "seed")
	x := float64(replicas)
	l.concurrency = 4
	l.runScenario(c, "patch")
	ops, _ := l.results[len(l.results)-1]["ops"].(int)
	write.curve("all processes", false).add(x, l.lastResult("cpu_ms_per_op"))
	per := func(keys ...string) (sum float64) {
		for _, k := range keys {
			sum += l.lastResult("cpu_s_" + k)
		}
		return sum * 1000 / float64(max(ops, 1))
	}
	write.curve("etcd", false).add(x, per("etcd"))
	write.curve("NATS", false).add(x, per("nats"))
	write.curve("the replica that serves the write", false).add(x, per("replica-0"))
	others := 0.0
	for i := 1; i < replicas; i++ {
		others += per(fmt.Sprintf("replica-%d", i)) / float64(replicas-1)
	}
	write.curve("each other replica", false).add(x, others)
	l.watchers, l.rate = watchers, 5
	l.runScenario(c, "watch")
	delivery.curve("all processes", false).add(x, l.lastResult("cpu_s_per_million_deliveries"))
	bare, floor, err := b.startFloor(l)
	if err != nil {
		return err
	}
	defer floor.terminate()
	bare.replicas = nil
	bare.runScenario(bare.newClient(), "watch")
	delivery.curve("all processes", true).add(x, bare.lastResult("cpu_s_per_million_deliveries"))
	return nil
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
