package build

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/admission/plugins"
	"binnacle/services/apiserver/internal/config"
)

// startError returns the error of a start with changed options.
func startError(t *testing.T, change func(dir string, options *config.Options)) string {
	t.Helper()
	dir := t.TempDir()
	serverOptions := testOptions(t, dir)
	change(dir, serverOptions)
	if err := serverOptions.Complete(); err != nil {
		return err.Error()
	}
	if errs := serverOptions.Validate(); len(errs) > 0 {
		return errs[0].Error()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := buildAndRelease(ctx, serverOptions, slog.New(slog.DiscardHandler)); err != nil {
		return err.Error()
	}
	return ""
}

// TestInvalidAdmissionFlagsFailStart checks that the server does not start with admission flags or files
// that contradict each other or name unknown plugins.
func TestInvalidAdmissionFlagsFailStart(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	for name, test := range map[string]struct {
		admission config.AdmissionOptions
		config    string
		want      string
	}{
		"unknown plugin enabled": {
			admission: config.AdmissionOptions{Enable: []string{"Nope"}},
			want:      `enable-admission-plugins plugin "Nope" is unknown`,
		},
		"unknown plugin disabled": {
			admission: config.AdmissionOptions{Disable: []string{"Nope"}},
			want:      `disable-admission-plugins plugin "Nope" is unknown`,
		},
		"unknown plugin, old flag": {
			admission: config.AdmissionOptions{AdmissionControl: []string{"Nope"}},
			want:      `admission-control plugin "Nope" is unknown`,
		},
		"enabled and disabled": {
			admission: config.AdmissionOptions{Enable: []string{"LimitRanger"}, Disable: []string{"LimitRanger"}},
			want:      "[LimitRanger] in enable-admission-plugins and disable-admission-plugins overlapped",
		},
		"old and new flag": {
			admission: config.AdmissionOptions{Enable: []string{"LimitRanger"}, AdmissionControl: []string{"LimitRanger"}},
			want:      "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
		},
		"configuration of another kind": {
			config: "apiVersion: v1\nkind: Pod\n",
			want:   `failed to apply admission: failed to read plugin config: no kind "Pod" is registered for version "v1"`,
		},
		"configuration of an unknown plugin": {config: admissionConfig("Nope", "{}"), want: `admission plugin "Nope" is unknown`},
		"configuration of one that has none": {
			config: admissionConfig("Priority", "{a: b}"),
			want:   `couldn't init admission plugin "Priority": it takes no configuration`,
		},
		"PodSecurity: unknown field": {
			config: admissionConfig("PodSecurity",
				"{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, bogus: 1}"),
			want: `failed to apply admission: couldn't init admission plugin "PodSecurity": strict decoding error: unknown field "bogus"`,
		},
		"PodSecurity: bad configuration": {
			config: admissionConfig("PodSecurity",
				`{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: odd, warn-version: "9"}}`),
			want: `failed to apply admission: failed to initialize admission plugin "PodSecurity": PodSecurity configuration error: [enforce: must be one of privileged, baseline, restricted, warn-version: must be "latest" or "v1.x"]`,
		},
		"EventRateLimit without configuration": {
			admission: config.AdmissionOptions{Enable: []string{"EventRateLimit"}},
			want:      `failed to apply admission: couldn't init admission plugin "EventRateLimit": limits: Invalid value: []eventratelimit.Limit(nil): must not be empty`,
		},
		"ImagePolicyWebhook without configuration": {
			admission: config.AdmissionOptions{Enable: []string{"ImagePolicyWebhook"}},
			want:      `failed to apply admission: couldn't init admission plugin "ImagePolicyWebhook": no config specified`,
		},
		"PodNodeSelector: misspelt": {
			admission: config.AdmissionOptions{Enable: []string{"PodNodeSelector"}},
			config:    admissionConfig("PodNodeSelector", "{selectors: {}}"),
			want:      `failed to apply admission: couldn't init admission plugin "PodNodeSelector": strict decoding error: unknown field "selectors"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := startError(t, func(dir string, options *config.Options) {
				options.Admission.Enable = test.admission.Enable
				options.Admission.Disable = test.admission.Disable
				options.Admission.AdmissionControl = test.admission.AdmissionControl
				if test.config != "" {
					options.Admission.ConfigFile = filepath.Join(dir, "admission.yaml")
					if err := os.WriteFile(options.Admission.ConfigFile, []byte(test.config), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			})
			if !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// admissionConfig returns an AdmissionConfiguration for one plugin.
func admissionConfig(plugin, configuration string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: " +
		plugin + ", configuration: " + configuration + "}]\n"
}

// TestEveryAdmissionPluginCanBeEnabled enables all plugins of Kubernetes except the one that is
// missing.
func TestEveryAdmissionPluginCanBeEnabled(t *testing.T) {
	t.Parallel()
	pluginConfig := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" +
		"- {name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: <dir>/images}}}\n" +
		"- {name: EventRateLimit, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1000, burst: 1000}]}}\n"
	images := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1/x'}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
	got := startError(t, func(dir string, options *config.Options) {
		for _, name := range plugins.Names() {
			if name != "MutatingAdmissionPolicy" {
				options.Admission.Enable = append(options.Admission.Enable, name)
			}
		}
		options.Admission.ConfigFile = filepath.Join(dir, "admission.yaml")
		for file, content := range map[string]string{
			options.Admission.ConfigFile: strings.ReplaceAll(pluginConfig, "<dir>", dir),
			filepath.Join(dir, "images"): images,
		} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got != "" {
		t.Error(got)
	}
}
