package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// temporary is an object that is created, used and deleted. In its texts, %[1]d stands for a number
// that is unique to the round, %[2]d for the last byte of an IP address and %[3]d for a port.
type temporary struct {
	collection, name, body string
	// uses are requests that use the object, as method and path. The query as=NAME impersonates a
	// user. The test checks only that the server has no internal error.
	uses [][2]string
	// finalizePath is the path of a finalize request after the deletion, or empty.
	finalizePath string
}

// temporaries are objects of the kinds for which the server keeps metrics, compiled expressions,
// clients, documents or queues.
var temporaries = []temporary{
	{
		collection: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		name:       "widgets.g%[1]d.test",
		body: `{"metadata":{"name":"widgets.g%[1]d.test"},"spec":{"group":"g%[1]d.test","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.%[2]d:9/c%[1]d"}}},
		"versions":[{"name":"v1","served":true,"storage":true,"additionalPrinterColumns":[{"name":"x","type":"string","jsonPath":".spec.a"}],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string","pattern":"^x%[1]d","x-kubernetes-validations":[{"rule":"self != 'y%[1]d'"}]}}}}}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
		uses: [][2]string{
			{"POST", "/apis/g%[1]d.test/v1/namespaces/default/widgets"},
			{"GET", "/apis/g%[1]d.test/v1/widgets"},
			{"GET", "/apis/g%[1]d.test/v2/widgets"},
			{"GET", "/apis/g%[1]d.test/v1/widgets?watch=1&timeoutSeconds=1"},
			{"GET", "/openapi/v3/apis/g%[1]d.test/v1"},
			{"GET", "/apis/g%[1]d.test"},
		},
	},
	{
		collection: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		name:       "p%[1]d",
		body:       `{"metadata":{"name":"p%[1]d"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}]},"validations":[{"expression":"object.metadata.name != 'x%[1]d'"}]}}`,
	},
	{
		collection: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
		name:       "p%[1]d",
		body:       `{"metadata":{"name":"p%[1]d"},"spec":{"policyName":"p%[1]d","validationActions":["Deny"]}}`,
		uses:       [][2]string{{"POST", "/api/v1/namespaces/default/secrets?dryRun=All"}},
	},
	{
		collection: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		name:       "w%[1]d",
		body: `{"metadata":{"name":"w%[1]d"},"webhooks":[{"name":"w%[1]d.hostile.test","failurePolicy":"Ignore","timeoutSeconds":1,"sideEffects":"None","admissionReviewVersions":["v1"],
		"clientConfig":{"url":"https://127.0.0.%[2]d:%[3]d/w"},"matchConditions":[{"name":"m","expression":"object.metadata.name != 'x%[1]d'"}],"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["podtemplates"]}]}]}`,
		uses: [][2]string{{"POST", "/api/v1/namespaces/default/podtemplates?dryRun=All"}},
	},
	{
		collection: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
		name:       "w%[1]d",
		body: `{"metadata":{"name":"w%[1]d"},"webhooks":[{"name":"w%[1]d.hostile.test","failurePolicy":"Ignore","timeoutSeconds":1,"sideEffects":"None","admissionReviewVersions":["v1"],
		"clientConfig":{"url":"https://127.0.0.%[2]d:%[3]d/m"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["podtemplates"]}]}]}`,
		uses: [][2]string{{"POST", "/api/v1/namespaces/default/podtemplates?dryRun=All"}},
	},
	{
		collection: "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
		name:       "l%[1]d",
		body:       `{"metadata":{"name":"l%[1]d"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Queue","queuing":{"queues":8,"handSize":2,"queueLengthLimit":5}}}}}`,
	},
	{
		collection: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
		name:       "f%[1]d",
		body:       `{"metadata":{"name":"f%[1]d"},"spec":{"priorityLevelConfiguration":{"name":"l%[1]d"},"matchingPrecedence":9000,"rules":[{"subjects":[{"kind":"User","user":{"name":"u%[1]d"}}],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]}]}}`,
		uses:       [][2]string{{"GET", "/api/v1/namespaces/default/configmaps?as=u%[1]d"}},
	},
	{
		collection: "/api/v1/namespaces",
		name:       "n%[1]d",
		body:       `{"metadata":{"name":"n%[1]d"}}`,
		uses: [][2]string{
			{"GET", "/api/v1/namespaces/n%[1]d/secrets"},
			{"GET", "/apis/unknown%[1]d.test/v1/things"},
			{"POST", "/api/v1/namespaces/n%[1]d/unknown%[1]d"},
		},
		finalizePath: "/api/v1/namespaces/n%[1]d/finalize",
	},
	{
		collection: "/api/v1/namespaces/default/resourcequotas",
		name:       "q%[1]d",
		body:       `{"metadata":{"name":"q%[1]d"},"spec":{"hard":{"count/things.q%[1]d.test":"1","secrets":"900"}}}`,
		uses:       [][2]string{{"POST", "/api/v1/namespaces/default/secrets?dryRun=All"}},
	},
}

// useTemporaryObjects creates, uses and deletes one object of each kind, in round n.
func (x *tenants) useTemporaryObjects(t *testing.T, count int) {
	fill := strings.NewReplacer(
		"%[1]d", strconv.Itoa(count),
		"%[2]d", strconv.Itoa(2+count%250),
		"%[3]d", strconv.Itoa(1024+count%60_000),
	).Replace

	for _, temporary := range temporaries {
		if err := x.sendAndRead(x.admin, "POST", temporary.collection, jsonMedia,
			fill(temporary.body)).requireCode(http.StatusCreated); err != nil {
			t.Errorf("%s: %v", fill(temporary.name), err)
		}
	}

	for _, temporary := range temporaries {
		for _, use := range temporary.uses {
			x.useTemporaryObject(t, use[0], fill(use[1]), fill)
		}
	}

	for _, temporary := range temporaries {
		path := temporary.collection + "/" + fill(temporary.name)
		if err := x.sendAndRead(x.admin, "DELETE", path, "", "").requireCode(http.StatusOK, http.StatusAccepted); err != nil {
			t.Errorf("delete %s: %v", path, err)
		}
		if temporary.finalizePath != "" {
			if err := x.sendAndRead(x.admin, "PUT", fill(temporary.finalizePath), jsonMedia,
				fill(`{"metadata":{"name":"n%[1]d"},"spec":{"finalizers":[]}}`)).requireCode(http.StatusOK); err != nil {
				t.Errorf("finalize %s: %v", path, err)
			}
		}
	}
}

// useTemporaryObject sends a request, and fails if the server has an internal error.
func (x *tenants) useTemporaryObject(t *testing.T, method, path string, fill func(string) string) {
	var header []string
	if before, user, ok := strings.Cut(path, "?as="); ok {
		path, header = before, []string{"Impersonate-User", user}
	}
	body := ""
	switch {
	case method != http.MethodPost:
	case strings.Contains(path, "secrets"):
		body = `{"metadata":{"name":"o%[1]d"}}`
	case strings.HasPrefix(path, "/apis/g"):
		body = `{"apiVersion":"g%[1]d.test/v1","kind":"Widget","metadata":{"name":"o%[1]d"},"spec":{"a":"x%[1]d"}}`
	default:
		body = `{"metadata":{"name":"o%[1]d"},"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}`
	}
	response := x.sendAndRead(x.admin, method, path, jsonMedia, fill(body), header...)
	// Nothing listens at the address of the conversion webhook. As in Kubernetes, that is a 500.
	failedConversion := strings.Contains(response.body, "conversion webhook")
	switch {
	case response.err != nil:
		t.Errorf("%s %s: %v", method, path, response.err)
	case response.code == http.StatusInternalServerError && !failedConversion:
		t.Errorf("%s %s: got 500, want another status: %.300s", method, path, response.body)
	}
}

// countSeries returns the number of time series of /metrics, in total and by metric family.
func (x *target) countSeries() (total int, byFamily map[string]int, err error) {
	resp, err := x.admin.Get(x.url + "/metrics")
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	byFamily = map[string]int{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if name, _, ok := strings.Cut(lines.Text(), "{"); ok && !strings.HasPrefix(name, "#") {
			byFamily[name]++
			total++
		}
	}
	return total, byFamily, lines.Err()
}

// TestDeletedObjectsLeaveNoState creates, uses and deletes definitions, policies, webhooks,
// namespaces, quotas, priority levels and flow schemas, and requests resources that do not exist.
// The number of series and the idle memory return to their previous values.
func TestDeletedObjectsLeaveNoState(t *testing.T) {
	tenants := startTenants(t)
	const (
		oneRound    = time.Duration(0) // argument of useFor
		spareSeries = 200              // growth allowed for kinds of requests not sent before
		spareHeap   = 16 << 20         // growth allowed, in bytes
	)
	var rounds atomic.Int64
	var workers sync.WaitGroup
	useFor := func(d time.Duration) { // each of 4 workers uses objects at least once
		for range 4 {
			workers.Go(func() {
				for end := time.Now().Add(d); ; {
					tenants.useTemporaryObjects(t, int(rounds.Add(1)))
					if !time.Now().Before(end) {
						return
					}
				}
			})
		}
		workers.Wait()
	}
	attackTime, warmupTime := 15*time.Second, oneRound
	if tenants.long {
		var err error
		if attackTime, err = time.ParseDuration(envOr("BINNACLE_HOSTILE_TIME", "10m")); err != nil {
			t.Fatal(err)
		}
		warmupTime = attackTime
	}

	// 1. Create the state that stays for good, and wait until the number of series is stable.
	useFor(oneRound)
	var seriesBefore int
	var familiesBefore map[string]int
	harness.Eventually(t, waitTimeout, "the series of the first objects to disappear", func() error {
		total, byFamily, err := tenants.countSeries()
		if err != nil {
			return err
		}
		last := seriesBefore
		seriesBefore, familiesBefore = total, byFamily
		if total != last {
			return fmt.Errorf("got %d series, had %d before", total, last)
		}
		return nil
	})

	// 2. Fill the bounded logs of etcd and of watches, and measure the idle heap.
	useFor(warmupTime)
	heapBefore, err := tenants.heapSize()
	if err != nil {
		t.Fatal(err)
	}

	// 3. Use objects for a long time.
	tenants.attackFor(t, 0, func(context.Context) {
		useFor(attackTime)
		// Each response with code 500 was checked. The count for a definition's resources
		// disappears with the definition.
		var err error
		if tenants.expectedErrors, err = tenants.sumMetric("apiserver_request_total", `code="500"`); err != nil {
			t.Error(err)
		}
	})

	// 4. Wait until series and heap are as they were.
	harness.Eventually(t, 2*waitTimeout, "series and memory to return", func() error {
		total, byFamily, err := tenants.countSeries()
		if err != nil {
			return err
		}
		if total > seriesBefore+spareSeries {
			grown := map[string]int{}
			for name, n := range byFamily {
				if n > familiesBefore[name]+10 {
					grown[name] = n - familiesBefore[name]
				}
			}
			text, _ := json.Marshal(grown)
			return fmt.Errorf("got %d series, had %d before: %s", total, seriesBefore, text)
		}
		heap, err := tenants.heapSize()
		if err == nil && heap > heapBefore+spareHeap {
			err = fmt.Errorf("heap: got %.0f MiB, had %.0f MiB before", heap/(1<<20), heapBefore/(1<<20))
		}
		return err
	})
	seriesAfter, _, _ := tenants.countSeries()
	heapAfter, _ := tenants.heapSize()
	t.Logf("%d rounds: %d series before, %d after; heap of %.1f MiB before, %.1f MiB after", rounds.Load(),
		seriesBefore, seriesAfter, heapBefore/(1<<20), heapAfter/(1<<20))
}
