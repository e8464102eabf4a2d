package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a server that the bench started.
type process struct {
	cmd *exec.Cmd
	url string
	// ready is the time from the start of the process to /readyz.
	ready time.Duration
}

// terminate stops the process and waits until it has exited.
func (p *process) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // shells make background processes ignore SIGINT
	_ = p.cmd.Wait()
}

// readyWithin bounds the start of a server with much data on a busy machine.
const readyWithin = 5 * time.Minute

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// waitForListener waits until a port accepts connections.
func waitForListener(port int) error {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) { // polling interval
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return c.Close()
		}
		if time.Since(start) > time.Minute {
			return err
		}
	}
}

// startProcess runs a server and waits until /readyz succeeds for a client, which is anonymous if
// cert is empty.
func startProcess(log, path, cert, key string, args ...string) (*process, error) {
	client := &tls.Config{InsecureSkipVerify: true}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		client.Certificates = []tls.Certificate{pair}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	started := &process{url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	started.cmd = exec.Command(path, append(args, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port))...)
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	started.cmd.Stdout, started.cmd.Stderr = out, out
	begin := time.Now()
	if err := started.cmd.Start(); err != nil {
		return nil, err
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: client}}
	defer c.CloseIdleConnections()
	for time.Since(begin) < readyWithin {
		resp, err := c.Get(started.url + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				started.ready = time.Since(begin)
				return started, nil
			}
		}
		time.Sleep(2 * time.Millisecond) // polling interval
	}
	started.terminate()
	return nil, fmt.Errorf("%s is not ready after %s; see %s", path, readyWithin, log)
}

// scenarios are the scenarios of the comparison in order.
var scenarios = []struct {
	name       string
	floorHasIt bool        // the floor supports the scenario
	adjust     func(*load) // changes the load; may be nil
}{
	{name: "list", floorHasIt: true},
	{name: "list-consistent", floorHasIt: true},
	{name: "list-proto", floorHasIt: true},
	{name: "list-meta", floorHasIt: true},
	{name: "list-table", floorHasIt: true},
	{name: "list-ns", floorHasIt: true},
	{name: "list-node", floorHasIt: true},
	{name: "list-label", floorHasIt: true},
	{name: "page", floorHasIt: true},
	{name: "list-storm", floorHasIt: true, adjust: func(l *load) { l.concurrency = 8 }},
	{name: "get", floorHasIt: true},
	{name: "get-rv0", floorHasIt: true},
	{name: "patch"},
	{name: "watch", floorHasIt: true, adjust: func(l *load) { l.watchers, l.rate = 500, 20 }},
	{name: "watch", floorHasIt: true, adjust: func(l *load) { l.watchers, l.rate = 500, 50 }},
	{name: "watch-node", floorHasIt: true, adjust: func(l *load) { l.watchers, l.rate = 2000, 50 }},
}

// compareWithFloor starts a server and the floor, loads both, and prints a table. binary is the
// file of the API server.
func compareWithFloor(settings *load, binary string) error {
	// 1. Create the certificates.
	dir, err := os.MkdirTemp("", "binnacle-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	certs := filepath.Join(dir, "certs")
	gen := exec.Command("go", "run", "./deploy/certs/cmd/certs", "--dir", certs)
	gen.Dir = ".."
	if out, err := gen.CombinedOutput(); err != nil {
		return fmt.Errorf("make certificates: %w\n%s", err, out)
	}
	file := func(folder, name string) string { return filepath.Join(certs, folder, name) }

	// 2. Start the server and create the pods. Measure its memory without and with them.
	tlsArgs := []string{"--tls-cert-file=" + file("apiserver", "apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver", "apiserver.key")}
	api, err := startProcess(filepath.Join(dir, "apiserver.log"), binary, file("admin", "admin.crt"),
		file("admin", "admin.key"),
		append(tlsArgs, "--data-dir="+filepath.Join(dir, "data"),
			"--client-ca-file="+file("apiserver", "client-ca.crt"), "--disable-admission-plugins=ServiceAccount")...)
	if err != nil {
		return err
	}
	defer api.terminate()
	settings.caFile, settings.certFile, settings.keyFile = file("admin", "serving-ca.crt"), file("admin", "admin.crt"), file("admin", "admin.key")
	settings.server, settings.label, settings.pids = api.url, "binnacle", fmt.Sprintf("apiserver=%d", api.cmd.Process.Pid)
	fmt.Printf("ready %d ms after the start of the process\n", api.ready.Milliseconds())
	c := settings.newClient()
	settings.runScenario(c, "idle")
	settings.runScenario(c, "seed")
	time.Sleep(3 * time.Second) // the cache catches up and memory settles
	settings.runScenario(c, "idle")

	// 3. Start the floor, which reads the same pods from the server.
	self, err := os.Executable()
	if err != nil {
		return err
	}
	floor, err := startProcess(filepath.Join(dir, "floor.log"), self, "", "",
		append([]string{"floor", "--upstream=" + api.url, "--cert=" + settings.certFile, "--key=" + settings.keyFile}, tlsArgs...)...)
	if err != nil {
		return err
	}
	defer floor.terminate()
	bare := *settings
	bare.server, bare.label, bare.pids, bare.results = floor.url, "floor", fmt.Sprintf("floor=%d", floor.cmd.Process.Pid), nil

	// 4. Run each scenario on both.
	var rows []string
	for _, setup := range scenarios {
		ours := *settings
		ours.results = nil
		theirs := bare
		if setup.adjust != nil {
			setup.adjust(&ours)
			setup.adjust(&theirs)
		}
		ours.runScenario(ours.newClient(), setup.name)
		floorCost := ""
		if setup.floorHasIt {
			theirs.runScenario(theirs.newClient(), setup.name)
			floorCost = resultCell(theirs, "cpu_ms_per_op")
		}
		row := []string{setup.name, resultCell(ours, "cpu_ms_per_op"), floorCost, resultCell(ours, "p50_ms"),
			resultCell(ours, "p99_ms"), resultCell(ours, "peak_mib_apiserver")}
		rows = append(rows, "| "+strings.Join(row, " | ")+" |")
	}
	fmt.Printf("\n| scenario | CPU ms/op | floor | p50 ms | p99 ms | peak MiB |\n|---|---|---|---|---|---|\n%s\n",
		strings.Join(rows, "\n"))
	return nil
}

// resultCell returns a value of the last result as text.
func resultCell(l load, key string) string {
	if len(l.results) == 0 {
		return ""
	}
	return fmt.Sprint(l.results[len(l.results)-1][key])
}
