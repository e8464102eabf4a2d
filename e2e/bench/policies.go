package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// idlePolicies is the number of policies that match no created object, activePolicies the number of
// those that match each pod, with three validations each.
const (
	idlePolicies   = 1000
	activePolicies = 10
)

const (
	policiesPath = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	bindingsPath = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
)

// measurePolicies measures creates of pods of about 6 KB without policies, with policies that do
// not match, and with some that match. It also measures the memory of a policy that does not match.
func measurePolicies(like *load, bin string) error {
	// 1. Start the server and create the namespaces.
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	api, err := b.startAPIServerProcess("policies", "--authorization-mode=AlwaysAllow",
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	defer api.terminate()
	settings := b.newLoad(like, "apiserver", api.url, api, "admin")
	client := settings.newClient()
	for i := range namespaces {
		if err := settings.create(client, "/api/v1/namespaces",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-%d"}}`, i)); err != nil {
			return err
		}
	}
	var rows []string
	measureCreates := func(name string) {
		run, round := *settings, len(rows)
		run.runTimed("create, "+name, run.concurrency, func(i int) error {
			return run.create(client, fmt.Sprintf("/api/v1/namespaces/bench-%d/pods", i%namespaces),
				run.largePod(fmt.Sprintf("pod-%d-%d", round, i), i))
		})
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", name, resultCell(run, "ops_per_s"),
			resultCell(run, "cpu_ms_per_op"), resultCell(run, "p50_ms"), resultCell(run, "p99_ms")))
	}

	// 2. Measure without policies.
	measureCreates("no policies, warming up")
	measureCreates("no policies")

	// 3. Add policies that do not match, and measure their memory and the creates beside them.
	before, err := settings.heapSize(client)
	if err != nil {
		return err
	}
	for i := range idlePolicies {
		if err := settings.createPolicy(client, fmt.Sprintf("idle-%04d", i), "apps", "deployments",
			fmt.Sprintf(`{"expression":"object.spec.replicas > %d","message":"too few"}`, i)); err != nil {
			return err
		}
	}
	if err := settings.waitForTypeChecks(client, idlePolicies); err != nil {
		return err
	}
	after, err := settings.heapSize(client)
	if err != nil {
		return err
	}
	measureCreates(fmt.Sprintf("beside %d policies that do not match", idlePolicies))

	// 4. Add policies that match, and measure again.
	for i := range activePolicies {
		if err := settings.createPolicy(client, fmt.Sprintf("active-%d", i), "", "pods", podValidations(i)); err != nil {
			return err
		}
	}
	measureCreates(fmt.Sprintf("and with %d that match", activePolicies))

	fmt.Printf("\n| create | creates/s | CPU ms/create | p50 ms | p99 ms |\n|---|---|---|---|---|\n%s\n",
		strings.Join(rows, "\n"))
	fmt.Printf("\nA policy that does not match, with its binding and what is stored of both: %.1f KiB\n",
		(after-before)/idlePolicies/1024)
	return nil
}

// podValidations returns three validations that every created pod satisfies. They depend on i, so
// that no two policies share a compiled expression.
func podValidations(i int) string {
	return fmt.Sprintf(`{"expression":"object.metadata.labels.app != 'x%[1]d'"},`+
		`{"expression":"object.spec.containers.all(c, c.image.startsWith('registry.example/') && c.name != 'n%[1]d')"},`+
		`{"expression":"!has(object.spec.hostNetwork) || !object.spec.hostNetwork || request.userInfo.username == 'u%[1]d'"}`, i)
}

// largePod returns a pod of about 6 KB.
func (l *load) largePod(name string, i int) string {
	var env strings.Builder
	for e := range 40 {
		fmt.Fprintf(&env, `{"name":"MORE_%d","value":"%s"},`, e, strings.Repeat("v", 24))
	}
	body := strings.Replace(string(l.podBody(i)), fmt.Sprintf(`"name":"pod-%05d"`, i), fmt.Sprintf(`"name":%q`, name), 1)
	return strings.Replace(body, `"env":[`, `"env":[`+env.String(), 1)
}

// createPolicy creates a policy and its binding.
func (l *load) createPolicy(client *http.Client, name, group, resource, validations string) error {
	if err := l.create(client, policiesPath,
		fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[%q],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":[%q]}]},"validations":[%s]}}`, name, group, resource, validations)); err != nil {
		return err
	}
	return l.create(client, bindingsPath,
		fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Deny"]}}`, name))
}

// waitForTypeChecks waits until all policies have a status.
func (l *load) waitForTypeChecks(c *http.Client, all int) error {
	for range 3000 {
		_, body, err := l.request(c, http.MethodGet, policiesPath, "", nil, "application/json")
		if err != nil || bytes.Count(body, []byte(`"observedGeneration":`)) == all {
			return err
		}
		time.Sleep(20 * time.Millisecond) // polling interval
	}
	return errors.New("policies have no status of type checking")
}

var heapBytes = regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (.*)$`)

// heapSize returns the size of the server's heap in bytes after a garbage collection.
func (l *load) heapSize(c *http.Client) (float64, error) {
	if _, _, err := l.request(c, http.MethodGet, "/debug/pprof/heap?gc=1", "", nil, "*/*"); err != nil {
		return 0, err
	}
	_, body, err := l.request(c, http.MethodGet, "/metrics", "", nil, "text/plain")
	if err != nil {
		return 0, err
	}
	m := heapBytes.FindSubmatch(body)
	if m == nil {
		return 0, errors.New("no metric of the heap size")
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
