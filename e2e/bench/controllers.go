package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	// controllersIdle is the time for which an idle manager is measured.
	controllersIdle = 30 * time.Second
	// cascadeTime bounds the deletion of all dependents.
	cascadeTime = 30 * time.Minute
	// comparedControllers are the controllers of the service controllers, by their names in
	// kube-controller-manager.
	comparedControllers = "namespace-controller,garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,resourcequota-controller,clusterrole-aggregation-controller,ttl-after-finished-controller,certificatesigningrequest-cleaner-controller"
)

// measureControllers compares the service controllers with a kube-controller-manager that runs the
// same controllers: CPU time and memory idle, with l.n dependents of one owner, and while these are
// deleted after their owner. It prints a table.
func measureControllers(like *load, bin, manager string) error {
	if manager == "" {
		return errors.New("name the file of kube-controller-manager")
	}
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Print("\n| program | idle: resident, anonymous MiB; CPU s per minute | with dependents | cascade: s; CPU s; peak MiB |\n|---|---|---|---|\n")
	for _, program := range []string{"controllers", "kube-controller-manager"} {
		if err := b.measureManager(like, program, manager); err != nil {
			return err
		}
	}
	return nil
}

// measureManager measures one program on a server of its own and prints its row.
func (b *bench) measureManager(like *load, program, manager string) error {
	running, api, err := b.startAPIServer(like, program)
	if err != nil {
		return err
	}
	defer api.terminate()
	p, err := b.startManager(program, manager, api.url)
	if err != nil {
		return err
	}
	defer p.terminate()
	running.pids = fmt.Sprintf("%s=%d", program, p.cmd.Process.Pid)
	client := running.newClient()
	if err := running.waitForServiceAccount(client); err != nil {
		return err
	}
	before := running.readUsage()
	time.Sleep(controllersIdle)
	idle := running.readUsage()
	perMinute := (idle.cpu[program] - before.cpu[program]) / controllersIdle.Minutes()

	if err := running.createOwnerAndDependents(client); err != nil {
		return err
	}
	time.Sleep(controllersIdle) // the collector has read all dependents
	full := running.readUsage()

	running.resetPeak()
	start := time.Now()
	if _, err := running.expect(client, http.StatusOK, http.MethodDelete, ownerPath, nil, "application/json"); err != nil {
		return err
	}
	if err := running.waitForDeletedDependents(client); err != nil {
		return err
	}
	took, after := time.Since(start), running.readUsage()
	fmt.Printf("| %s | %.0f, %.0f; %.2f | %.0f, %.0f | %.0f; %.1f; %.0f |\n", program,
		idle.resident[program], idle.anonymous[program], perMinute, full.resident[program], full.anonymous[program],
		took.Seconds(), after.cpu[program]-full.cpu[program], after.peak[program])
	return nil
}

// startManager starts a program that runs comparedControllers.
func (b *bench) startManager(program, manager, url string) (*process, error) {
	config, err := b.writeKubeconfig(url, "admin")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig=" + config, "--root-ca-file=" + b.certificateFile("admin", "serving-ca.crt"),
		"--controllers=" + comparedControllers,
		"--kube-api-qps=1000", "--kube-api-burst=1000", // the default rates would determine the time
	}
	log := filepath.Join(b.dir, program+"-manager.log")
	if program == "controllers" {
		return startProcess(log, filepath.Join(b.bin, program), "", "", append(b.servingFlags(program), args...)...)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(manager, append(args, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port))...)}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	return p, p.cmd.Start()
}

const (
	dependentsPath = "/api/v1/namespaces/default/configmaps"
	ownerPath      = dependentsPath + "/owner"
)

// waitForServiceAccount waits until the service account of the namespace default exists.
func (l *load) waitForServiceAccount(c *http.Client) error {
	for start := time.Now(); time.Since(start) < readyWithin; time.Sleep(100 * time.Millisecond) { // polling interval
		code, _, err := l.request(c, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", "", nil,
			"application/json")
		if err == nil && code == http.StatusOK {
			return nil
		}
	}
	return errors.New("no controller creates service accounts")
}

// createOwnerAndDependents creates an owner and l.n dependents.
func (l *load) createOwnerAndDependents(client *http.Client) error {
	out, err := l.expect(client, http.StatusCreated, http.MethodPost, dependentsPath,
		[]byte(`{"metadata":{"name":"owner"}}`), "application/json")
	if err != nil {
		return err
	}
	var owner struct {
		Metadata struct{ UID string }
	}
	if err := json.Unmarshal(out, &owner); err != nil {
		return err
	}
	_, failed := runConcurrently(l.objectCount, l.concurrency, func(i int) error {
		return l.create(client, dependentsPath,
			fmt.Sprintf(`{"metadata":{"name":"dependent-%d","labels":{"dependent":"yes"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, i, owner.Metadata.UID))
	})
	if failed > 0 {
		return fmt.Errorf("failed to create %d dependents", failed)
	}
	return nil
}

// expect sends a request and returns the body of the response. Another status is an error.
func (l *load) expect(c *http.Client, status int, method, path string, body []byte, accept string) ([]byte, error) {
	code, out, err := l.request(c, method, path, "application/json", body, accept)
	if err != nil {
		return nil, err
	}
	if code != status {
		return nil, fmt.Errorf("%s %s: got status %d, want %d: %.300s", method, path, code, status, out)
	}
	return out, nil
}

// waitForDeletedDependents waits until no dependent exists.
func (l *load) waitForDeletedDependents(c *http.Client) error {
	for start := time.Now(); time.Since(start) < cascadeTime; time.Sleep(time.Second) { // polling interval
		out, err := l.expect(c, http.StatusOK, http.MethodGet,
			dependentsPath+"?labelSelector=dependent&limit=1&resourceVersion=0", nil,
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		if err != nil {
			return err
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(out, &list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return nil
		}
	}
	return fmt.Errorf("dependents are left after %s", cascadeTime)
}
