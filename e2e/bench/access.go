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
	// rounds is the number of rounds per side in the comparison of cached decisions.
	rounds = 10
	// bindingsAtOnce is the number of role bindings that are created concurrently.
	bindingsAtOnce = 32
	// reviewedClient is a client whose requests are authorized by authz-webhook.
	reviewedClient = "tokencleaner-client"
	askerName      = "system:binnacle:tokencleaner"
	review         = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"user-%d","groups":["system:authenticated","dev"],"resourceAttributes":{"namespace":"default","verb":"%s","version":"v1","resource":"configmaps","name":"c"}}}`
)

// sizes are the measured numbers of role bindings.
var sizes = []int{10, 1000, 10000}

// bench is the folder of a run with its certificates.
type bench struct{ dir, bin string }

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

func (b *bench) close()                          { _ = os.RemoveAll(b.dir) }
func (b *bench) file(folder, name string) string { return filepath.Join(b.dir, "certs", folder, name) }

// pair returns the files of a certificate and its key by name.
func (b *bench) pair(name string) (cert, key string) {
	folder := strings.TrimSuffix(name, "-client")
	if strings.HasPrefix(name, "apiserver") {
		folder = "apiserver"
	}
	return b.file(folder, name+".crt"), b.file(folder, name+".key")
}

// serving returns the certificate flags of a service.
func (b *bench) serving(name string) []string {
	cert, key := b.pair(name)
	return []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--client-ca-file=" + b.file(name, "client-ca.crt")}
}

// apiserver starts an API server with its own data folder.
func (b *bench) apiserver(name string, args ...string) (*process, error) {
	args = slices.Concat(b.serving("apiserver"), []string{"--data-dir=" + filepath.Join(b.dir, name)}, args)
	cert, key := b.pair("admin")
	return start(filepath.Join(b.dir, name+".log"), filepath.Join(b.bin, "apiserver"), cert, key, args...)
}

// kubeconfig writes a kubeconfig for a server and a client and returns its path.
func (b *bench) kubeconfig(url, client string) (string, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters["b"] = &clientcmdapi.Cluster{Server: url, CertificateAuthority: b.file("admin", "serving-ca.crt")}
	cert, key := b.pair(client)
	c.AuthInfos["b"] = &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key}
	c.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "b"}
	c.CurrentContext = "b"
	file := filepath.Join(b.dir, client+".kubeconfig")
	return file, clientcmd.WriteToFile(*c, file)
}

// load returns the load for a process.
func (b *bench) load(like *load, label, url string, p *process, client string) *load {
	l := *like
	l.caFile = b.file("admin", "serving-ca.crt")
	l.certFile, l.keyFile = b.pair(client)
	l.server, l.label, l.results = url, label, nil
	l.pids = fmt.Sprintf("%s=%d", label, p.cmd.Process.Pid)
	return &l
}

// access measures reviews of authz-webhook with growing numbers of role bindings, and the cost of a
// cached decision for a GET.
func access(like *load, bin string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	api, err := b.apiserver("rbac", "--authorization-mode=RBAC")
	if err != nil {
		return err
	}
	defer api.stop()
	follow, err := b.kubeconfig(api.url, "authz-webhook-client")
	if err != nil {
		return err
	}
	authz, err := start(filepath.Join(b.dir, "authz.log"), filepath.Join(bin, "authz-webhook"), "", "", append(b.serving("authz-webhook"), "--kubeconfig="+follow)...)
	if err != nil {
		return err
	}
	defer authz.stop()
	if err := reviews(b.load(like, "apiserver", api.url, api, "admin"), b.load(like, "authz-webhook", authz.url, authz, "apiserver-webhook-client")); err != nil {
		return err
	}
	return kept(like, b, authz)
}

// reviews sends reviews directly to authz-webhook.
func reviews(api, authz *load) error {
	admin, reviewedClient := api.newClient(), authz.newClient()
	if err := api.bind(admin, -1, askerName); err != nil {
		return err
	}
	made := 0
	var rows []string
	for _, n := range sizes {
		if _, failed := parallel(n-made, bindingsAtOnce, func(i int) error { return api.bind(admin, made+i, fmt.Sprint("user-", made+i)) }); failed > 0 {
			return fmt.Errorf("failed to create %d role bindings", failed)
		}
		made = n
		if err := authz.settled(reviewedClient, n-1); err != nil {
			return err
		}
		ask := func(i int) error {
			verb, want := "get", true
			if i%2 == 1 {
				verb, want = "delete", false
			}
			return authz.review(reviewedClient, i%n, verb, want)
		}
		all := *authz
		all.run1("reviews", all.conc, ask)
		one := *authz
		one.run1("reviews-one-by-one", 1, ask)
		rows = append(rows, fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %s |", n, cell(all, "ops_per_s"), cell(all, "cpu_ms_per_op"), cell(all, "p50_ms"), cell(all, "p99_ms"), cell(one, "p99_ms"), cell(all, "rss_mib_authz-webhook")))
	}
	fmt.Printf("\n| role bindings | reviews/s | CPU ms/review | p50 ms | p99 ms | p99 ms, one client | resident MiB |\n|---|---|---|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	return nil
}

// run1 runs f for the duration of a scenario.
func (l *load) run1(name string, c int, f func(i int) error) {
	before := l.measure()
	ops, secs, lat, errs := l.timed(c, f)
	l.report(name, before, ops, secs, lat, map[string]any{"errors": errs})
}

// bind gives a user a role in the default namespace.
func (l *load) bind(c *http.Client, i int, user string) error {
	const group = "rbac.authorization.k8s.io"
	rules := `[{"apiGroups":[""],"resources":["pods","services"],"verbs":["list","watch"]},{"apiGroups":["apps"],"resources":["deployments"],"verbs":["*"]},{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`
	for path, body := range map[string]string{
		"roles":        fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Role","metadata":{"name":"role%d"},"rules":%s}`, group, i, rules),
		"rolebindings": fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"RoleBinding","metadata":{"name":"binding%d"},"roleRef":{"apiGroup":"%s","kind":"Role","name":"role%d"},"subjects":[{"kind":"User","name":"%s"}]}`, group, i, group, i, user),
	} {
		code, out, err := l.request(c, "POST", "/apis/"+group+"/v1/namespaces/default/"+path, "application/json", []byte(body), "application/json")
		if err == nil && code != http.StatusCreated {
			err = fmt.Errorf("create %s: %d %.300s", path, code, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// review sends a review of a user's access to ConfigMaps.
func (l *load) review(c *http.Client, user int, verb string, want bool) error {
	code, out, err := l.request(c, "POST", "/", "application/json", fmt.Appendf(nil, review, user, verb), "application/json")
	if err != nil {
		return err
	}
	var got struct{ Status struct{ Allowed bool } }
	if err := json.Unmarshal(out, &got); err != nil || code != http.StatusOK || got.Status.Allowed != want {
		return fmt.Errorf("review of user-%d, %s: %d %.300s", user, verb, code, out)
	}
	return nil
}

// settled waits until the service uses the last binding.
func (l *load) settled(c *http.Client, last int) (err error) {
	for range 1000 {
		if err = l.review(c, last, "get", true); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // the service offers no notification
	}
	return err
}

// kept compares a GET with a cached decision with one that is always allowed, in alternating
// rounds.
func kept(like *load, b *bench, authz *process) error {
	ask, err := b.kubeconfig(authz.url, "apiserver-webhook-client")
	if err != nil {
		return err
	}
	free, err := b.apiserver("free", "--authorization-mode=AlwaysAllow")
	if err != nil {
		return err
	}
	defer free.stop()
	asking, err := b.apiserver("asking", "--authorization-mode=Webhook", "--authorization-webhook-version=v1", "--authorization-webhook-config-file="+ask)
	if err != nil {
		return err
	}
	defer asking.stop()
	const path = "/api/v1/namespaces/default/configmaps/c?resourceVersion=0"
	sides := []*load{b.load(like, "free", free.url, free, "admin"), b.load(like, "asking", asking.url, asking, "admin")}
	clients := make([]*http.Client, len(sides))
	for i, l := range sides {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"` + strings.Repeat("v", 1000) + `"}}`
		if code, out, err := l.request(l.newClient(), "POST", "/api/v1/namespaces/default/configmaps", "application/json", []byte(body), "application/json"); err != nil || code != http.StatusCreated {
			return fmt.Errorf("create: %d %.300s %w", code, out, err)
		}
		user := *l
		user.certFile, user.keyFile = b.pair(reviewedClient)
		clients[i] = user.newClient()
	}
	get := func(i int) func(int) error {
		return func(int) error {
			code, out, err := sides[i].request(clients[i], "GET", path, "", nil, "application/json")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%s: %d %.300s", path, code, out)
			}
			return err
		}
	}
	var cost [2][]float64
	for range rounds {
		for i, l := range sides {
			l.run1("get-kept", l.conc, get(i))
			r := l.results[len(l.results)-1]
			cost[i] = append(cost[i], r["cpu_s"].(float64)*1000/float64(r["ops"].(int)))
		}
	}
	var ratios []float64
	for i := range cost[0] {
		ratios = append(ratios, cost[1][i]/cost[0][i])
	}
	fmt.Printf("\nGET with a cached decision: %.4f ms of CPU; always allowed: %.4f ms; ratio, median of %d pairs: %.3f (%.3f to %.3f)\n",
		pct(cost[1], .5), pct(cost[0], .5), rounds, pct(ratios, .5), pct(ratios, 0), pct(ratios, 1))
	return nil
}
