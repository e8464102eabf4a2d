package build

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

const (
	firstSecret  = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	secondSecret = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
)

// encrypting returns a configuration with one rule; providers are in YAML.
func encrypting(resources string, providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" +
		resources + "]\n  providers:\n  - " + strings.Join(providers, "\n  - ") + "\n"
}

// keyed returns a provider with one key.
func keyed(provider, name, secret string) string {
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, name, secret)
}

// replaceFile replaces a file atomically.
func replaceFile(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".next", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

// encrypted starts a server with a configuration, and returns the file.
func encrypted(t *testing.T, configuration string, change func(*config.Options)) (*testServer, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "enc.yaml")
	replaceFile(t, file, configuration)
	return startServer(t, func(options *config.Options) {
		options.Encryption.ConfigFile = file
		if change != nil {
			change(options)
		}
	}), file
}

// reloading enables the automatic reload of the configuration.
func reloading(options *config.Options) { options.Encryption.Reload = true }

// secret returns a secret with one value.
func secret(name, value string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"data":{"k":%q}}`, name, base64.StdEncoding.EncodeToString([]byte(value)))
}

// stored returns the stored value of a key.
func (api *testServer) stored(key string) []byte {
	api.t.Helper()
	kv, _, err := api.server.stores.store.Get(api.t.Context(), key, 0)
	if err != nil {
		api.t.Fatalf("%s: %v", key, err)
	}
	return kv.Value
}

// reloadConfiguration writes a configuration and waits until it is loaded.
func (api *testServer) reloadConfiguration(file, configuration string) {
	api.t.Helper()
	previous := api.server.stores.encryptionConfig.Current()
	replaceFile(api.t, file, configuration)
	api.waitUntil("loaded", func() bool { return api.server.stores.encryptionConfig.Current() != previous })
}

// TestDecryptionErrorsMatchRecordings checks that the errors for values that cannot be decrypted equal the
// recorded ones. One difference is intended: the cache of this server is ready and has all intact objects,
// so a list gets the error of a collection deletion instead of 429.
func TestDecryptionErrorsMatchRecordings(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const at = "/registry/secrets/default/"
	api, file := encrypted(t, encrypting("secrets", keyed("aescbc", "k1", firstSecret), "identity: {}"), reloading)
	for i, providers := range [][]string{
		{keyed("aescbc", "k1", firstSecret)},
		{},
		{keyed("aesgcm", "k1", firstSecret), keyed("aescbc", "k1", firstSecret)},
		{},
		{keyed("secretbox", "k1", firstSecret), keyed("aescbc", "k1", firstSecret), keyed("aesgcm", "k1", firstSecret)},
	} {
		if i > 0 && len(providers) > 0 {
			api.reloadConfiguration(file, encrypting("secrets", providers...))
		}
		api.mustSend(201, "POST", secrets, secret(fmt.Sprintf("s%d", i), "value"))
	}
	reload := func(configuration string) {
		t.Helper()
		const loads = `apiserver_watch_cache_initializations_total{resource="secrets"}`
		before := api.metricValue(loads)
		api.reloadConfiguration(file, configuration)
		api.waitUntil("reloaded", func() bool { return api.metricValue(loads) > before })
	}
	reload(encrypting("secrets", keyed("aescbc", "k1", firstSecret)))
	reload(encrypting("secrets", keyed("aescbc", "k1", firstSecret), "identity: {}"))
	for _, exchange := range readRecording(t, "encryption", "read-errors.json") {
		switch {
		case exchange.Configuration != "":
			configuration := exchange.Configuration
			if strings.Contains(exchange.Name, "no identity") {
				api.overwrite(at+"plain", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"plain","namespace":"default"}}`)
			}
			reload(configuration)
			if strings.Contains(exchange.Name, "other secrets") {
				api.overwrite(at+"bad1", "k8s:enc:aescbc:v1:k1:")
				api.overwrite(at+"bad2", "k8s:enc:aescbc:v1:k1:short")
				api.overwrite(at+"bad3", "k8s:enc:rot13:v1:k1:x")
				api.overwrite(at+"bad4", "\xffnonsense")
				api.overwrite(at+"bad5", "k8s:enc:kms:v2:none:x")
			}
			continue
		case exchange.Name == "readyz":
			api.waitUntil("ready", func() bool { return api.get("/readyz").code == http.StatusOK })
			continue
		case exchange.Response.Status == 429:
			response := api.mustSend(500, exchange.Request.Method, exchange.Request.Path, "")
			const noKey = `Internal error occurred: unable to transform key "/registry/secrets/default/s0": no matching key was found for the provided AES transformer`
			if text := fmt.Sprint(response.field("message")); text != noKey {
				t.Errorf("%s: got message %s, want %s", exchange.Name, text, noKey)
			}
			continue
		case exchange.Name == "create still works":
			exchange.Response.Body.(map[string]any)["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
				"manager":    "Go-http-client",
				"operation":  "Update",
				"apiVersion": "v1",
				"time":       "<time>",
				"fieldsType": "FieldsV1",
				"fieldsV1":   "<fields>",
			}}
		}
		if exchange.Name == "get aescbc" && strings.Contains(string(api.get(exchange.Request.Path).body), "invalid PKCS7 data") {
			continue // the result of decrypting with another key is random
		}
		api.replay(t, exchange)
	}
	api.waitUntil("ready", func() bool { return api.get("/readyz").code == http.StatusOK })
}

// TestEncryptionConfigIsReloaded checks the effects of reloads on stored values, reads, watches, health
// checks and metrics. An invalid or missing file keeps the previous configuration.
func TestEncryptionConfigIsReloaded(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api, file := encrypted(t, encrypting("secrets", keyed("aescbc", "k1", firstSecret), "identity: {}"), reloading)
	checkHealth := func(path string, wantKMS bool) {
		t.Helper()
		body := string(api.get(path + "?verbose").body)
		if want := "[+]poststarthook/start-encryption-provider-config-automatic-reload ok\n"; !strings.Contains(body, want) {
			t.Errorf("%s: got body %s, want it to contain %q", path, body, want)
		}
		if got := strings.Contains(body, "[+]kms-providers ok\n"); got != wantKMS {
			t.Errorf("%s: got check kms-providers: %t, want %t", path, got, wantKMS)
		}
	}
	checkHealth("/livez", false)
	checkHealth("/readyz", true)
	checkHealth("/healthz", true)
	api.mustSend(200, "GET", "/readyz/kms-providers", "")
	api.mustSend(404, "GET", "/livez/kms-providers", "")
	api.mustSend(201, "POST", secrets, secret("first", "value"))
	api.reloadConfiguration(file,
		encrypting("secrets", keyed("secretbox", "k2", secondSecret), keyed("aescbc", "k1", firstSecret), "identity: {}"))
	api.mustSend(201, "POST", secrets, secret("second", "value"))
	if got := api.stored("/registry/secrets/default/second"); !bytes.HasPrefix(got, []byte("k8s:enc:secretbox:v1:k2:")) {
		t.Errorf("stored is %.40q, want prefix k8s:enc:secretbox:v1:k2:", got)
	}
	api.mustSend(200, "GET", secrets+"/first", "")
	reloads := func(status string) float64 {
		return api.metricValue(`apiserver_encryption_config_controller_automatic_reloads_total{apiserver_id_hash="` +
			api.serverHash() + `",status="` + status + `"}`)
	}
	if n := reloads("success"); n != 1 {
		t.Errorf("got %v successful reloads, want 1", n)
	}
	replaceFile(t, file, encrypting("secrets", keyed("aescbc", "k3", "short")))
	api.waitUntil("counted", func() bool { return reloads("failure") == 1 })
	api.mustSend(201, "POST", secrets, secret("third", "value"))
	if got := api.stored("/registry/secrets/default/third"); !bytes.HasPrefix(got, []byte("k8s:enc:secretbox:v1:k2:")) {
		t.Errorf("after an invalid file: stored is %.40q, want prefix k8s:enc:secretbox:v1:k2:", got)
	}
	newest := api.mustSend(200, "GET", secrets, "").resourceVersion()
	var watches []*watched // continue when objects cannot be decrypted any more
	for _, query := range []string{"", "&fieldSelector=type%3DOpaque", "&labelSelector=!none"} {
		watches = append(watches, watchOf(api, secrets+"?watch=true&resourceVersion="+newest+query),
			watchOf(api, "/api/v1/secrets?watch=true&resourceVersion="+newest+query))
	}
	api.reloadConfiguration(file, encrypting("secrets", "identity: {}"))
	api.waitUntil("unreadable", func() bool { return api.get(secrets+"/first").code == 500 })
	if text := fmt.Sprint(api.get(secrets + "/first").field("message")); text != "Internal error occurred: no matching prefix found" {
		t.Errorf("got message %s, want %q", text, "Internal error occurred: no matching prefix found")
	}
	api.mustSend(201, "POST", secrets, secret("fourth", "value"))
	if got := api.stored("/registry/secrets/default/fourth"); !bytes.HasPrefix(got, []byte("k8s\x00")) {
		t.Errorf("stored is %.40q, want unencrypted protobuf, prefix %q", got, "k8s\x00")
	}
	api.mustSend(500, "GET", secrets, "")
	for _, watch := range watches {
		if got := watch.next(); got != "ADDED fourth" {
			t.Errorf("got event %s, want ADDED fourth", got)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	api.waitUntil("counted", func() bool { return reloads("failure") == 2 })
	api.mustSend(200, "GET", secrets+"/fourth", "")
}

// serverHash returns the ID of this server in metrics.
func (api *testServer) serverHash() string {
	for line := range strings.Lines(string(api.get("/metrics").body)) {
		if _, rest, ok := strings.Cut(line, `apiserver_id_hash="`); ok {
			hash, _, _ := strings.Cut(rest, `"`)
			return hash
		}
	}
	return ""
}

// TestUpdateRewritesStaleEncryption checks that an update without changes is written if the value
// was encrypted with an old key, and only then.
func TestUpdateRewritesStaleEncryption(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api, file := encrypted(t, encrypting("secrets", "identity: {}"), reloading)
	api.mustSend(201, "POST", secrets, secret("s", "value"))
	const key = "/registry/secrets/default/s"
	if got := api.stored(key); !bytes.HasPrefix(got, []byte("k8s\x00")) {
		t.Fatalf("stored is %.40q, want unencrypted protobuf, prefix %q", got, "k8s\x00")
	}
	prefix := "k8s\x00"
	for _, next := range []struct{ configuration, prefix string }{
		{configuration: encrypting("secrets", keyed("aescbc", "k1", firstSecret), "identity: {}"), prefix: "k8s:enc:aescbc:v1:k1:"},
		{
			configuration: encrypting("secrets", keyed("aesgcm", "k1", firstSecret), keyed("aescbc", "k1", firstSecret)),
			prefix:        "k8s:enc:aesgcm:v1:k1:",
		},
		{
			configuration: encrypting("secrets", keyed("secretbox", "a:b", firstSecret), keyed("aesgcm", "k1", firstSecret)),
			prefix:        "k8s:enc:secretbox:v1:a:b:",
		},
		{configuration: encrypting("secrets", "identity: {}", keyed("secretbox", "a:b", firstSecret)), prefix: "k8s\x00"},
	} {
		api.reloadConfiguration(file, next.configuration)
		live := api.mustSend(200, "GET", secrets+"/s", "")
		if dry := api.mustSend(200, "PUT", secrets+"/s?dryRun=All", string(live.body)); dry.resourceVersion() != live.resourceVersion() {
			t.Errorf("dry run: got version %s, want %s", dry.resourceVersion(), live.resourceVersion())
		}
		if got := api.stored(key); !bytes.HasPrefix(got, []byte(prefix)) {
			t.Errorf("after a dry run: stored is %.40q, want the previous prefix %q", got, prefix)
		}
		rewritten := api.mustSend(200, "PUT", secrets+"/s", string(live.body))
		if got := api.stored(key); !bytes.HasPrefix(got, []byte(next.prefix)) {
			t.Errorf("outdated value: stored is %.40q, want prefix %q", got, next.prefix)
		}
		if rewritten.resourceVersion() == live.resourceVersion() {
			t.Errorf("outdated value: got version %s unchanged, want a later one", live.resourceVersion())
		}
		if again := api.mustSend(200, "PUT", secrets+"/s", string(rewritten.body)); again.resourceVersion() != rewritten.resourceVersion() {
			t.Errorf("update of a current value: got version %s, want %s", again.resourceVersion(), rewritten.resourceVersion())
		}
		if again := api.mustSend(200, "PATCH", secrets+"/s", `{}`, "Content-Type", mergePatch); again.resourceVersion() != rewritten.resourceVersion() {
			t.Errorf("patch of a current value: got version %s, want %s", again.resourceVersion(), rewritten.resourceVersion())
		}
		prefix = next.prefix
	}
}

// TestEncryptedDataIsNotStoredInPlainText checks that neither the data directory nor the messages between
// replicas contain the plain text of encrypted objects.
func TestEncryptedDataIsNotStoredInPlainText(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()

	// 1. Record all messages of the change stream.
	bus, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go bus.Start()
	t.Cleanup(bus.Shutdown)
	if !bus.ReadyForConnections(20 * time.Second) {
		t.Fatal("NATS does not listen within 20 s")
	}
	listener, err := nats.Connect(bus.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listener.Close)
	const plain, marker = "this text is secret", "a public marker"
	messages := make(chan []byte, 10_000)
	if _, err := listener.Subscribe(">", func(m *nats.Msg) { messages <- m.Data }); err != nil {
		t.Fatal(err)
	}

	// 2. Write objects of several kinds that contain the plain text.
	var dataDir string
	api, _ := encrypted(t, encrypting("'*.*'", keyed("aesgcm", "k1", firstSecret)), func(options *config.Options) {
		onEtcd(t)(options)
		options.Fanout.Servers = []string{bus.ClientURL()}
		dataDir = options.Etcd.DataDir
	})
	// Changes are published only on request.
	requestChanges := func() { _ = listener.Publish("binnacle."+api.options.Fanout.ClusterID+".ask", nil) }
	requestChanges()
	api.mustSend(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"wids.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"wids","kind":"Wid"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	api.waitUntil("served", func() bool { return api.get("/apis/ex.test/v1/namespaces/default/wids").code == 200 })
	api.mustSend(201, "POST", "/apis/ex.test/v1/namespaces/default/wids",
		`{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"w"},"spec":"`+plain+`"}`)
	api.mustSend(201, "POST", configMaps, configMap("c", "k", plain))
	api.mustSend(201, "POST", secrets, secret("s", plain))
	api.mustSend(201, "POST", "/api/v1/namespaces/default/events",
		`{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"},"message":"`+plain+`"}`)

	// 3. Search the messages and the data directory for the plain text. An unencrypted marker
	// proves that the search works.
	api.overwrite("/registry/marker", marker)
	markers := 0
	search := func(where string, message []byte) {
		if bytes.Contains(message, []byte(plain)) || bytes.Contains(message, []byte(base64.StdEncoding.EncodeToString([]byte(plain)))) {
			t.Errorf("%s contains the plain text, want it encrypted", where)
		}
		if bytes.Contains(message, []byte(marker)) {
			markers++
		}
	}
	api.waitUntil("published", func() bool {
		requestChanges()
		for {
			select {
			case message := <-messages:
				search("a message", message)
			default:
				return markers > 0
			}
		}
	})
	markers = 0
	err = filepath.WalkDir(dataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		message, err := os.ReadFile(path)
		search(path, message)
		return err
	})
	if err != nil {
		t.Errorf("search of the data directory: %v", err)
	}
	if markers == 0 {
		t.Error("got no file with the public marker, want one: the search finds nothing")
	}

	// 4. The objects are readable, and their values have the prefix of the key.
	for _, path := range []string{
		"/apis/ex.test/v1/namespaces/default/wids/w", configMaps + "/c", secrets + "/s",
		"/api/v1/namespaces/default/events/e",
	} {
		api.mustSend(200, "GET", path, "")
	}
	for _, key := range []string{
		"/registry/ex.test/wids/default/w", "/registry/events/default/e",
		"/registry/services/specs/default/kubernetes",
	} {
		if got := api.stored(key); !bytes.HasPrefix(got, []byte("k8s:enc:aesgcm:v1:k1:")) {
			t.Errorf("%s is stored as %.40q, want prefix k8s:enc:aesgcm:v1:k1:", key, got)
		}
	}
}

// TestServerStartsWithoutKMSPlugin checks that the server starts without a KMS plugin and reports it, that
// resources without encryption work, and that encrypted resources work once the plugin runs.
func TestServerStartsWithoutKMSPlugin(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	plugin := kmstest.New(t)
	plugin.Stop()
	file := filepath.Join(t.TempDir(), "enc.yaml")
	replaceFile(t, file, encrypting("secrets",
		"kms: {apiVersion: v2, name: rec, endpoint: '"+plugin.Endpoint()+"', timeout: 200ms}",
		"identity: {}"))
	api := startUnreadyServer(t, func(options *config.Options) { options.Encryption.ConfigFile = file })
	api.waitUntil("loaded", func() bool { return strings.Contains(string(api.get("/readyz?verbose").body), "[+]informer-sync ok") })
	api.waitUntil("bootstrapped", func() bool { return api.get("/api/v1/namespaces/default").code == 200 })
	for path, want := range map[string]int{
		"/readyz/kms-providers": 500, "/healthz/kms-providers": 500, "/healthz/kms-provider-0": 404,
		"/livez/kms-providers": 404, "/livez": 200,
	} {
		api.waitUntil("expected status of "+path, func() bool { return api.get(path).code == want })
	}
	rejected := api.mustSend(500, "POST", secrets, secret("s", "value"))
	if text := fmt.Sprint(rejected.field("message")); text != "Internal error occurred: got unexpected nil transformer" {
		t.Errorf("got message %s, want %q", text, "Internal error occurred: got unexpected nil transformer")
	}
	api.mustSend(201, "POST", configMaps, configMap("c"))
	plugin.Start()
	api.waitUntil("ready", func() bool { return api.get("/readyz").code == http.StatusOK })
	api.mustSend(201, "POST", secrets, secret("s", "value"))
	if got := api.stored("/registry/secrets/default/s"); !bytes.HasPrefix(got, []byte("k8s:enc:kms:v2:rec:")) {
		t.Errorf("stored is %.40q, want prefix k8s:enc:kms:v2:rec:", got)
	}
}

// TestEncryptionMetricsMatchRecordings checks that the recorded metrics exist.
func TestEncryptionMetricsMatchRecordings(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api, _ := encrypted(t, encrypting("secrets", keyed("aescbc", "k1", firstSecret)), nil)
	api.mustSend(201, "POST", secrets, secret("s", "value"))
	api.mustSend(200, "GET", secrets+"/s", "")
	body := string(api.get("/metrics").body)
	for _, recorded := range readRecordedMetrics(t) {
		if !strings.Contains(body, "# TYPE "+recorded.Name+" "+recorded.Type+"\n") {
			t.Errorf("got no metric %s, want a %s", recorded.Name, recorded.Type)
		}
		for _, sample := range recorded.Samples {
			if series := sample[:strings.LastIndexByte(sample, ' ')]; !strings.Contains(body, "\n"+series+" ") {
				t.Errorf("got no series %s, want one", series)
			}
		}
	}
}

// TestEncryptionReloadNeedsFile checks that the automatic reload is rejected without an encryption
// configuration file.
func TestEncryptionReloadNeedsFile(t *testing.T) {
	t.Parallel()
	options := testOptions(t, t.TempDir())
	options.Encryption.Reload = true
	found := false
	for _, err := range options.Validate() {
		found = found || err == encryption.ErrWithoutFile
	}
	if !found {
		t.Error("got the reload accepted without a file, want it rejected")
	}
}
