package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// restarts is the number of starts on the same data.
const restarts = 2

// listMediaTypes are the media types in which a restarted server lists all pods.
var listMediaTypes = []string{"application/json", "application/vnd.kubernetes.protobuf",
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1"}

// measureRestarts starts a server repeatedly on copies of the same data with l.n pods. It prints
// the cost until the server is ready, and the resident memory then and after lists of all pods in
// all forms. Existing data in the folder is reused, so that two programs can be compared.
func measureRestarts(settings *load, bin, data string) error {
	started, err := newBench(bin)
	if err != nil {
		return err
	}
	defer started.close()
	if _, err := os.Stat(data); os.IsNotExist(err) {
		if err := started.fillData(settings, data); err != nil {
			return err
		}
	}
	fmt.Print("\n| pods | ready after s | CPU s | peak MiB | resident, anonymous MiB | 5 s later | after lists | 15 s later | CPU s of the lists |\n|---|---|---|---|---|---|---|---|---|\n")
	for range restarts {
		if err := started.restart(settings, data); err != nil {
			return err
		}
	}
	return nil
}

// fillData creates a data folder with pods.
func (b *bench) fillData(like *load, data string) error {
	socket := filepath.Join(b.dir, "etcd.sock")
	l, api, err := b.startAPIServer(like, "filled", "--embedded-etcd-listen-client-url=unix://"+socket)
	if err != nil {
		return err
	}
	l.objectCount = templates
	c := l.newClient()
	l.runScenario(c, "seed")
	_, err = l.addPods(c, "unix://"+socket, 0, like.objectCount)
	if err == nil {
		err = waitForPurgedLog(filepath.Join(b.dir, "filled", "member", "wal"))
	}
	api.terminate()
	if err != nil {
		return err
	}
	return copyFolder(filepath.Join(b.dir, "filled"), data)
}

// A start reads all files of etcd's log. etcd removes old files half a minute after a snapshot and
// checks twice a minute.
const (
	logFiles  = 3
	purgeTime = 2 * time.Minute
)

// waitForPurgedLog waits until etcd's log is as short as that of a server that has run for a while.
func waitForPurgedLog(dir string) error {
	fmt.Fprintln(os.Stderr, "waiting until etcd has purged its log")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(purgeTime); time.Now().Before(end); <-tick.C {
		files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil {
			return err
		}
		if len(files) <= logFiles {
			return nil
		}
	}
	return fmt.Errorf("etcd's log has more than %d files after %s", logFiles, purgeTime)
}

// copyFolder copies a folder.
func copyFolder(from, to string) error {
	if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy data: %w\n%s", err, out)
	}
	return nil
}

// restart starts a server on a copy of the data and prints its row.
func (b *bench) restart(like *load, data string) error {
	again := filepath.Join(b.dir, "again")
	if err := os.RemoveAll(again); err != nil {
		return err
	}
	if err := copyFolder(data, again); err != nil {
		return err
	}
	running, api, err := b.startAPIServer(like, "again")
	if err != nil {
		return err
	}
	defer api.terminate()
	ready := running.readUsage()
	time.Sleep(5 * time.Second) // work after readiness ends, and the runtime returns free memory
	later := running.readUsage()
	c := running.newClient()
	for _, accept := range listMediaTypes {
		start := time.Now()
		if err := running.discardResponse(c, "/api/v1/pods?resourceVersion=0", accept); err != nil {
			return fmt.Errorf("list as %s, after %s: %w", accept, time.Since(start), err)
		}
	}
	listed := running.readUsage()
	time.Sleep(15 * time.Second)
	end := running.readUsage()
	memory := func(u processUsage) string {
		return fmt.Sprintf("%.0f, %.0f", u.resident["apiserver"], u.anonymous["apiserver"])
	}
	fmt.Printf("| %d | %.2f | %.1f (%.1f 5 s later) | %.0f | %s | %s | %s | %s | %.1f |\n", like.objectCount,
		api.ready.Seconds(), ready.cpu["apiserver"], later.cpu["apiserver"], later.peak["apiserver"], memory(ready),
		memory(later), memory(listed), memory(end), listed.cpu["apiserver"]-later.cpu["apiserver"])
	return nil
}
