package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// passiveWebhooks is the number of webhooks that do not match the created objects.
const passiveWebhooks = 10

// measureAdmission measures creates of pods: with the default plugins, with webhooks that do not
// match, and with one that matches.
func measureAdmission(like *load, bin string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	api, err := b.startAPIServerProcess("admission", "--authorization-mode=AlwaysAllow",
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	defer api.terminate()
	settings := b.newLoad(like, "apiserver", api.url, api, "admin")
	client := settings.newClient()

	// 1. Create the namespaces, and start a webhook that allows everything.
	for i := range namespaces {
		if err := settings.create(client, "/api/v1/namespaces",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-%d"}}`, i)); err != nil {
			return err
		}
	}
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
			review.Request.UID)
	}))
	defer hook.Close()
	addWebhook := func(name, resource string) error {
		ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
			Type:  "CERTIFICATE",
			Bytes: hook.Certificate().Raw,
		}))
		return settings.create(client, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[{
			"name":"%s.bench.test","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],
			"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":[%q]}]}]}`, name,
				name, hook.URL, ca, resource))
	}

	// 2. Define the changes between the rounds.
	besidePassive := fmt.Sprintf("beside %d webhooks that do not match", passiveWebhooks)
	addPassive := func() error {
		for i := range passiveWebhooks {
			if err := addWebhook(fmt.Sprintf("passive-%d", i), "secrets"); err != nil {
				return err
			}
		}
		return nil
	}
	removeAll := func() error {
		code, out, err := settings.request(client, http.MethodDelete,
			"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "", nil, "application/json")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("remove webhooks: %d %.300s", code, out)
		}
		return err
	}
	noChange := func() error { return nil }
	addMatching := func() error { return addWebhook("active", "pods") }

	// 3. Measure creates. Rounds with and without webhooks alternate, because creates become more
	// expensive with the number of objects.
	var rows []string
	for round, setup := range []struct {
		name    string
		prepare func() error
	}{
		{"default plugins, warming up", noChange},
		{"default plugins", noChange},
		{besidePassive, addPassive},
		{"default plugins, again", removeAll},
		{besidePassive + ", again", addPassive},
		{"default plugins, once more", removeAll},
		{"with a webhook that matches", addMatching},
	} {
		if err := setup.prepare(); err != nil {
			return err
		}
		run := *settings
		run.runTimed("create, "+setup.name, run.concurrency, func(i int) error {
			oldName, newName := fmt.Sprintf(`"name":"pod-%05d"`, i), fmt.Sprintf(`"name":"pod-%d-%d"`, round, i)
			body := strings.Replace(string(run.podBody(i)), oldName, newName, 1)
			return run.create(client, fmt.Sprintf("/api/v1/namespaces/bench-%d/pods", i%namespaces), body)
		})
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", setup.name, resultCell(run, "ops_per_s"),
			resultCell(run, "cpu_ms_per_op"), resultCell(run, "p50_ms"), resultCell(run, "p99_ms")))
	}
	fmt.Printf("\n| create | creates/s | CPU ms/create | p50 ms | p99 ms |\n|---|---|---|---|---|\n%s\n",
		strings.Join(rows, "\n"))
	return nil
}

// create creates an object.
func (l *load) create(c *http.Client, path, body string) error {
	code, out, err := l.request(c, http.MethodPost, path, "application/json", []byte(body), "application/json")
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("create %s: %d %.300s", path, code, out)
	}
	return err
}
