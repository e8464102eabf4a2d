package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// comparisonRounds is the number of rounds of each server in the comparison of cached
	// decisions.
	comparisonRounds = 10
	// bindingsAtOnce is the number of role bindings that are created concurrently.
	bindingsAtOnce = 32
	// reviewedClient is the name of the certificate of a client whose requests are authorized by
	// authz-webhook.
	reviewedClient = "tokencleaner-client"
	// boundUser is the user name of reviewedClient.
	boundUser = "system:binnacle:tokencleaner"
	// reviewBody is the format of a review, with the number of the user and the verb.
	reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{` +
		`"user":"user-%d","groups":["system:authenticated","dev"],"resourceAttributes":{"namespace":"default","verb":"%s","version":"v1","resource":"configmaps","name":"c"}}}`
)

// bindingCounts are the numbers of role bindings at which reviews are measured.
var bindingCounts = []int{10, 1000, 10000}

// bench is the folder of a run, with certificates and the data of its servers.
type bench struct {
	dir string
	bin string // folder of the programs
}

// newBench makes a temporary folder with certificates for all servers and clients.
func newBench(bin string) (*bench, error) {
	dir, err := os.MkdirTemp("", "binnacle-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, bin: bin}
	gen := exec.Command("go", "run", "./deploy/certs/cmd/certs", "--dir", filepath.Join(dir, "certs"))
	gen.Dir = ".."
	if out, err := gen.CombinedOutput(); err != nil {
		b.close()
		return nil, fmt.Errorf("make certificates: %w\n%s", err, out)
	}
	return b, nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// certificateFile returns the path of a file in a folder of certificates.
func (b *bench) certificateFile(folder, name string) string {
	return filepath.Join(b.dir, "certs", folder, name)
}

// certificateFiles returns the files of the certificate with a name, such as
// "apiserver-webhook-client", and of its key.
func (b *bench) certificateFiles(name string) (cert, key string) {
	folder := strings.TrimSuffix(name, "-client")
	if strings.HasPrefix(name, "apiserver") {
		folder = "apiserver"
	}
	return b.certificateFile(folder, name+".crt"), b.certificateFile(folder, name+".key")
}

// servingFlags returns the certificate flags of a service.
func (b *bench) servingFlags(name string) []string {
	cert, key := b.certificateFiles(name)
	return []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
		"--client-ca-file=" + b.certificateFile(name, "client-ca.crt")}
}

// startAPIServerProcess starts an API server with the data folder and log file of a name.
func (b *bench) startAPIServerProcess(name string, args ...string) (*process, error) {
	args = slices.Concat(b.servingFlags("apiserver"), []string{"--data-dir=" + filepath.Join(b.dir, name)}, args)
	cert, key := b.certificateFiles("admin")
	return startProcess(filepath.Join(b.dir, name+".log"), filepath.Join(b.bin, "apiserver"), cert, key, args...)
}

// writeKubeconfig writes a kubeconfig for a server and a client and returns its path.
func (b *bench) writeKubeconfig(url, client string) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["b"] = &clientcmdapi.Cluster{Server: url, CertificateAuthority: b.certificateFile("admin", "serving-ca.crt")}
	cert, key := b.certificateFiles(client)
	config.AuthInfos["b"] = &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key}
	config.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "b"}
	config.CurrentContext = "b"
	file := filepath.Join(b.dir, client+".kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// newLoad returns a load like another one for a process, as the client with a certificate name.
func (b *bench) newLoad(like *load, label, url string, p *process, client string) *load {
	l := *like
	l.caFile = b.certificateFile("admin", "serving-ca.crt")
	l.certFile, l.keyFile = b.certificateFiles(client)
	l.server, l.label, l.results = url, label, nil
	l.pids = fmt.Sprintf("%s=%d", label, p.cmd.Process.Pid)
	return &l
}

// measureAccess measures reviews of authz-webhook with growing numbers of role bindings, and the
// cost of a cached decision for a GET.
func measureAccess(like *load, bin string) error {
	started, err := newBench(bin)
	if err != nil {
		return err
	}
	defer started.close()
	api, err := started.startAPIServerProcess("rbac", "--authorization-mode=RBAC")
	if err != nil {
		return err
	}
	defer api.terminate()
	follow, err := started.writeKubeconfig(api.url, "authz-webhook-client")
	if err != nil {
		return err
	}
	authz, err := startProcess(filepath.Join(started.dir, "authz.log"), filepath.Join(bin, "authz-webhook"), "", "",
		append(started.servingFlags("authz-webhook"), "--kubeconfig="+follow)...)
	if err != nil {
		return err
	}
	defer authz.terminate()
	if err := measureReviews(started.newLoad(like, "apiserver", api.url, api, "admin"),
		started.newLoad(like, "authz-webhook", authz.url, authz, "apiserver-webhook-client")); err != nil {
		return err
	}
	return compareCachedDecision(like, started, authz)
}

// measureReviews sends reviews directly to authz-webhook.
func measureReviews(api, authz *load) error {
	admin, reviewer := api.newClient(), authz.newClient()
	if err := api.bindUser(admin, -1, boundUser); err != nil {
		return err
	}
	created := 0 // role bindings that exist
	var rows []string
	for _, count := range bindingCounts {
		_, failed := runConcurrently(count-created, bindingsAtOnce, func(i int) error {
			return api.bindUser(admin, created+i, fmt.Sprint("user-", created+i))
		})
		if failed > 0 {
			return fmt.Errorf("failed to create %d role bindings", failed)
		}
		created = count
		if err := authz.waitForLastBinding(reviewer, count-1); err != nil {
			return err
		}

		review := func(i int) error { // half of the reviews are allowed, half denied
			if i%2 == 1 {
				return authz.sendReview(reviewer, i%count, "delete", denied)
			}
			return authz.sendReview(reviewer, i%count, "get", allowed)
		}
		concurrent := *authz
		concurrent.runTimed("reviews", concurrent.concurrency, review)
		sequential := *authz
		sequential.runTimed("reviews-one-by-one", 1, review)
		rows = append(rows, fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %s |", count, resultCell(concurrent, "ops_per_s"),
			resultCell(concurrent, "cpu_ms_per_op"), resultCell(concurrent, "p50_ms"), resultCell(concurrent, "p99_ms"),
			resultCell(sequential, "p99_ms"), resultCell(concurrent, "rss_mib_authz-webhook")))
	}
	fmt.Println("\n| role bindings | reviews/s | CPU ms/review | p50 ms | p99 ms | p99 ms, one client | resident MiB |")
	fmt.Printf("|---|---|---|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	return nil
}

// runTimed calls f for the duration of a scenario from several goroutines and records the result.
func (l *load) runTimed(name string, concurrency int, f func(i int) error) {
	before := l.readUsage()
	calls, seconds, latencies, errs := l.runForDuration(concurrency, f)
	l.addResult(name, before, calls, seconds, latencies, map[string]any{"errors": errs})
}

// bindUser creates the i-th role in the default namespace and binds it to a user.
func (l *load) bindUser(client *http.Client, i int, user string) error {
	const group = "rbac.authorization.k8s.io"
	const rules = `[{"apiGroups":[""],"resources":["pods","services"],"verbs":["list","watch"]},` +
		`{"apiGroups":["apps"],"resources":["deployments"],"verbs":["*"]},` +
		`{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`
	for path, body := range map[string]string{
		"roles": fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Role","metadata":{"name":"role%d"},"rules":%s}`,
			group, i, rules),
		"rolebindings": fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"RoleBinding","metadata":{"name":"binding%d"},`+
			`"roleRef":{"apiGroup":"%s","kind":"Role","name":"role%d"},"subjects":[{"kind":"User","name":"%s"}]}`,
			group, i, group, i, user),
	} {
		code, out, err := l.request(client, "POST", "/apis/"+group+"/v1/namespaces/default/"+path, "application/json",
			[]byte(body), "application/json")
		if err == nil && code != http.StatusCreated {
			err = fmt.Errorf("create %s: %d %.300s", path, code, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Decisions that sendReview can require.
const allowed, denied = true, false

// sendReview asks authz-webhook for a user's access to ConfigMaps. It fails unless the decision is
// want: allowed or denied.
func (l *load) sendReview(c *http.Client, user int, verb string, want bool) error {
	code, out, err := l.request(c, "POST", "/", "application/json", fmt.Appendf(nil, reviewBody, user, verb), "application/json")
	if err != nil {
		return err
	}
	var got struct{ Status struct{ Allowed bool } }
	if err := json.Unmarshal(out, &got); err != nil || code != http.StatusOK || got.Status.Allowed != want {
		return fmt.Errorf("review of user-%d, %s: %d %.300s", user, verb, code, out)
	}
	return nil
}

// waitForLastBinding waits until authz-webhook uses the binding of the last user.
func (l *load) waitForLastBinding(c *http.Client, last int) (err error) {
	for range 1000 {
		if err = l.sendReview(c, last, "get", allowed); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // the service offers no notification
	}
	return err
}

// compareCachedDecision compares a GET with a cached decision of authz-webhook with one that is
// always allowed, in alternating rounds.
func compareCachedDecision(like *load, env *bench, authz *process) error {
	// 1. Start one server that allows everything and one that asks authz-webhook.
	webhookConfig, err := env.writeKubeconfig(authz.url, "apiserver-webhook-client")
	if err != nil {
		return err
	}
	free, err := env.startAPIServerProcess("free", "--authorization-mode=AlwaysAllow")
	if err != nil {
		return err
	}
	defer free.terminate()
	asking, err := env.startAPIServerProcess("asking", "--authorization-mode=Webhook",
		"--authorization-webhook-version=v1", "--authorization-webhook-config-file="+webhookConfig)
	if err != nil {
		return err
	}
	defer asking.terminate()

	// 2. Create the object on both.
	const path = "/api/v1/namespaces/default/configmaps/c?resourceVersion=0"
	sides := []*load{env.newLoad(like, "free", free.url, free, "admin"), env.newLoad(like, "asking", asking.url, asking, "admin")}
	clients := make([]*http.Client, len(sides))
	for i, l := range sides {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"` + strings.Repeat("v", 1000) + `"}}`
		if code, out, err := l.request(l.newClient(), "POST", "/api/v1/namespaces/default/configmaps",
			"application/json", []byte(body), "application/json"); err != nil || code != http.StatusCreated {
			return fmt.Errorf("create: %d %.300s %w", code, out, err)
		}
		user := *l
		user.certFile, user.keyFile = env.certificateFiles(reviewedClient)
		clients[i] = user.newClient()
	}

	// 3. Measure GET requests on both in turn.
	getFrom := func(side int) func(int) error {
		return func(int) error {
			code, out, err := sides[side].request(clients[side], "GET", path, "", nil, "application/json")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%s: %d %.300s", path, code, out)
			}
			return err
		}
	}
	var costs [2][]float64 // CPU ms of a request in each round, by side
	for range comparisonRounds {
		for i, l := range sides {
			l.runTimed("get-cached", l.concurrency, getFrom(i))
			r := l.results[len(l.results)-1]
			costs[i] = append(costs[i], r["cpu_s"].(float64)*1000/float64(r["ops"].(int)))
		}
	}
	var ratios []float64
	for round := range costs[0] {
		ratios = append(ratios, costs[1][round]/costs[0][round])
	}
	fmt.Printf("\nGET with a cached decision: %.4f ms of CPU; always allowed: %.4f ms; "+
		"ratio, median of %d pairs: %.3f (%.3f to %.3f)\n",
		percentile(costs[1], .5), percentile(costs[0], .5), comparisonRounds, percentile(ratios, .5),
		percentile(ratios, 0), percentile(ratios, 1))
	return nil
}
