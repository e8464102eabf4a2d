package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"binnacle/e2e/harness"
)

// policyBindings returns bindings of policies to namespaces with a label.
func policyBindings(names []string, label, more string) string {
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Deny"],"matchResources":{"namespaceSelector":{"matchExpressions":[{"key":%[2]q,"operator":"Exists"}]}}%[3]s}}`+"\n---\n", name, label, more)
	}
	return out.String()
}

var policyNames = regexp.MustCompile(`(?m)^kind: ValidatingAdmissionPolicy\nmetadata: \{name: ([^}]*)\}`)

// applyPolicies applies a file and returns the names of its policies.
func applyPolicies(t *testing.T, cli *harness.CLI, file string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/policies/" + file)
	if err != nil {
		t.Fatal(err)
	}
	cli.RunWith(t, string(text), "apply", "-f", "-")
	for _, m := range policyNames.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("got no policies in %s", file)
	}
	return names
}

// safePod is the spec of a pod that all policies allow.
const safePod = `{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c","image":"registry.example.com/team/app:v1",
	"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}`

// forms are the kinds that contain a pod spec.
var forms = map[string]string{
	"Pod":         `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"annotations":{}},"spec":%s}`,
	"Deployment":  `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":%s}}}`,
	"StatefulSet": `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":%q},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":%s}}}`,
	"CronJob":     `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":%q},"spec":{"schedule":"@daily","jobTemplate":{"spec":{"template":{"spec":%s}}}}}`,
}

// podCase is a change of the allowed pod as a JSON patch, the policy that denies it, if any, and a
// part of the message.
type podCase struct{ name, patch, policy, message string }

const first = "/containers/0/securityContext"

// addOperation returns a JSON patch that adds a value.
func addOperation(at, value string) string {
	return fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, at, value)
}

// baselineCases returns pods that the policies of the level baseline reject.
func baselineCases() []podCase {
	return []podCase{
		{name: "safe"},
		{
			name:    "host-network",
			patch:   addOperation("/hostNetwork", "true"),
			policy:  "baseline-host-namespaces",
			message: "not shared",
		},
		{name: "host-pid", patch: addOperation("/hostPID", "true"), policy: "baseline-host-namespaces", message: "not shared"},
		{name: "host-ipc", patch: addOperation("/hostIPC", "true"), policy: "baseline-host-namespaces", message: "not shared"},
		{
			name:    "privileged",
			patch:   addOperation(first, `{"privileged":true}`),
			policy:  "baseline-privileged",
			message: "c must not be privileged",
		},
		{name: "privileged-init",
			patch: addOperation("/initContainers",
				`[{"name":"i","image":"registry.example.com/i:v1","securityContext":{"privileged":true}}]`),
			policy: "baseline-privileged", message: "i must not be privileged"},
		{name: "some-capabilities", patch: addOperation(first+"/capabilities/add", `["CHOWN","KILL"]`)},
		{
			name:    "capabilities",
			patch:   addOperation(first+"/capabilities/add", `["CHOWN","SYS_ADMIN"]`),
			policy:  "baseline-capabilities",
			message: "SYS_ADMIN is too much",
		},
		{
			name:    "host-path",
			patch:   addOperation("/volumes", `[{"name":"h","hostPath":{"path":"/"}}]`),
			policy:  "baseline-host-path",
			message: "not mounted",
		},
		{name: "empty-dir", patch: addOperation("/volumes", `[{"name":"h","emptyDir":{}}]`)},
		{
			name:    "host-port",
			patch:   addOperation("/containers/0/ports", `[{"containerPort":80,"hostPort":80}]`),
			policy:  "baseline-host-ports",
			message: "not taken",
		},
		{name: "port", patch: addOperation("/containers/0/ports", `[{"containerPort":80}]`)},
		{
			name:    "app-armor",
			patch:   addOperation(first+"/appArmorProfile", `{"type":"Unconfined"}`),
			policy:  "baseline-apparmor",
			message: "stays on",
		},
		{name: "app-armor-of-the-pod", patch: addOperation("/securityContext/appArmorProfile", `{"type":"Unconfined"}`),
			policy: "baseline-apparmor", message: "stays on"},
		{
			name:    "selinux",
			patch:   addOperation("/securityContext/seLinuxOptions", `{"type":"spc_t"}`),
			policy:  "baseline-selinux",
			message: "limited",
		},
		{
			name:    "selinux-user",
			patch:   addOperation(first+"/seLinuxOptions", `{"user":"root"}`),
			policy:  "baseline-selinux",
			message: "limited",
		},
		{name: "selinux-container", patch: addOperation(first+"/seLinuxOptions", `{"type":"container_t","level":"s0:c1,c2"}`)},
		{name: "proc-mount", patch: addOperation("/hostUsers", "false") + "," + addOperation(first+"/procMount", `"Unmasked"`),
			policy: "baseline-proc-mount", message: "masked"},
		{
			name:    "seccomp",
			patch:   addOperation(first+"/seccompProfile", `{"type":"Unconfined"}`),
			policy:  "baseline-seccomp",
			message: "stays on",
		},
		{
			name:    "sysctl",
			patch:   addOperation("/securityContext/sysctls", `[{"name":"kernel.msgmax","value":"1"}]`),
			policy:  "baseline-sysctls",
			message: "kernel.msgmax are set",
		},
		{
			name:  "safe-sysctl",
			patch: addOperation("/securityContext/sysctls", `[{"name":"net.ipv4.tcp_syncookies","value":"1"}]`),
		},
	}
}

// restrictedCases returns pods that the policies of the level restricted reject.
func restrictedCases() []podCase {
	return []podCase{
		{name: "safe"},
		{
			name:    "host-path",
			patch:   addOperation("/volumes", `[{"name":"h","hostPath":{"path":"/"}}]`),
			policy:  "restricted-volumes",
			message: "few kinds",
		},
		{name: "nfs",
			patch: addOperation("/volumes",
				`[{"name":"s","secret":{"secretName":"s"}},{"name":"n","nfs":{"server":"s","path":"/"}}]`),
			policy: "restricted-volumes", message: "few kinds"},
		{name: "secret", patch: addOperation("/volumes", `[{"name":"s","secret":{"secretName":"s"}}]`)},
		{
			name:    "escalation",
			patch:   addOperation(first+"/allowPrivilegeEscalation", "true"),
			policy:  "restricted-privilege-escalation",
			message: "do not escalate",
		},
		{
			name:    "no-context",
			patch:   `{"op":"remove","path":"` + first + `"}`,
			policy:  "restricted-capabilities",
			message: "dropped",
		},
		{
			name:    "root",
			patch:   `{"op":"remove","path":"/securityContext/runAsNonRoot"}`,
			policy:  "restricted-non-root",
			message: "as root",
		},
		{
			name:    "root-in-one",
			patch:   addOperation(first+"/runAsNonRoot", "false"),
			policy:  "restricted-non-root",
			message: "as root",
		},
		{
			name:  "not-root-in-one",
			patch: `{"op":"remove","path":"/securityContext/runAsNonRoot"},` + addOperation(first+"/runAsNonRoot", "true"),
		},
		{
			name:    "user-0",
			patch:   addOperation("/securityContext/runAsUser", "0"),
			policy:  "restricted-non-root",
			message: "no user is 0",
		},
		{name: "user-1", patch: addOperation("/securityContext/runAsUser", "1000")},
		{
			name:    "no-seccomp",
			patch:   `{"op":"remove","path":"/securityContext/seccompProfile"}`,
			policy:  "restricted-seccomp",
			message: "seccomp is on",
		},
		{name: "seccomp-in-one",
			patch: `{"op":"remove","path":"/securityContext/seccompProfile"},` + addOperation(first+"/seccompProfile",
				`{"type":"RuntimeDefault"}`)},
		{
			name:    "capabilities",
			patch:   `{"op":"remove","path":"` + first + `/capabilities"}`,
			policy:  "restricted-capabilities",
			message: "dropped",
		},
		{name: "a-capability", patch: addOperation(first+"/capabilities/add", `["NET_BIND_SERVICE"]`)},
		{
			name:    "too-many-capabilities",
			patch:   addOperation(first+"/capabilities/add", `["CHOWN"]`),
			policy:  "restricted-capabilities",
			message: "dropped",
		},
	}
}

// TestPodSecurityInPolicies tests policies that implement the pod security standards, on all kinds
// with pod specs.
func TestPodSecurityInPolicies(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	for level, cases := range map[string][]podCase{"baseline": baselineCases(), "restricted": restrictedCases()} {
		names := applyPolicies(t, cli, level+".yaml")
		cli.RunWith(t, policyBindings(names, level, ""), "apply", "-f", "-")
		cli.RunWith(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%[1]q,"labels":{%[1]q:""}}}`, level), "apply", "-f", "-")
		refusing := map[string]bool{}
		for kind, form := range forms {
			t.Run(level+"/"+kind, func(t *testing.T) { checkPodCases(t, cli.WithNamespace(level), kind, form, cases) })
		}
		for _, c := range cases {
			refusing[c.policy] = true
		}
		for _, name := range names {
			if !refusing[name] {
				t.Errorf("policy %s: got no case, want one", name)
			}
			harness.Eventually(t, time.Minute, "type checking of "+name, func() error {
				if text := cli.Run(t, "get", "validatingadmissionpolicy", name, "-o",
					"jsonpath={.status.observedGeneration}{.status.typeChecking.expressionWarnings}"); text != "1" {
					return errors.New(text)
				}
				return nil
			})
		}
	}
	cli = cli.WithNamespace("restricted")
	cli.RunWith(t, fmt.Sprintf(forms["Pod"], "p", safePod), "create", "-f", "-")
	debug := cli.Execute(t, "", "debug", "p", "--image=registry.example.com/tools:v1", "--profile=sysadmin", "--attach=false")
	expectParts(t, "an ephemeral container that may do everything", debug.Stderr, "denied request", "restricted-")
	cli.Run(t, "debug", "p", "--image=registry.example.com/tools:v1", "--profile=restricted", "--attach=false")
	elsewhere := strings.Replace(safePod, `"runAsNonRoot":true`, `"runAsNonRoot":false`, 1)
	cli.WithNamespace("default").RunWith(t, fmt.Sprintf(forms["Pod"], "p", elsewhere), "create", "-f", "-")
}

// checkPodCases creates the pods of the cases with one run of kubectl.
func checkPodCases(t *testing.T, cli *harness.CLI, kind, form string, cases []podCase) {
	t.Helper()
	var all []json.RawMessage
	for _, testCase := range cases {
		p, err := jsonpatch.DecodePatch([]byte("[" + testCase.patch + "]"))
		if err != nil {
			t.Fatalf("%s: %v", testCase.name, err)
		}
		pod, err := p.Apply([]byte(safePod))
		if err != nil {
			t.Fatalf("%s: %v", testCase.name, err)
		}
		if kind == "CronJob" {
			pod = []byte(strings.Replace(string(pod), "{", `{"restartPolicy":"Never",`, 1))
		}
		all = append(all, json.RawMessage(fmt.Sprintf(form, testCase.name, pod)))
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
	if err != nil {
		t.Fatal(err)
	}
	result := cli.Execute(t, string(list), "create", "--dry-run=server", "-f", "-")
	for _, testCase := range cases {
		created := strings.Contains(result.Stdout, "/"+testCase.name+" created")
		said := ""
		for line := range strings.Lines(result.Stderr) {
			if strings.Contains(line, `"`+testCase.name+`" is forbidden: `) {
				said = line
			}
		}
		if testCase.policy == "" {
			if !created || said != "" {
				t.Errorf("%s: got denied: %s", testCase.name, result.Stderr)
			}
			continue
		}
		if created || !strings.Contains(said,
			"ValidatingAdmissionPolicy '"+testCase.policy+"' with binding '"+testCase.policy+"' denied request: ") ||
			!strings.Contains(said, testCase.message) {
			t.Errorf("%s: got created %t, %q; want denied by %s with %q", testCase.name, created, said, testCase.policy, testCase.message)
		}
	}
}

// TestCommonPolicies tests widely used policies with all operations on objects.
func TestCommonPolicies(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	names := applyPolicies(t, cli, "common.yaml")
	cli.Run(t, "create", "namespace", "team")
	cli.Run(t, "label", "namespace", "team", "common=")
	team := cli.WithNamespace("team")
	params := map[string]string{
		"required-labels": `,"paramRef":{"name":"labels","parameterNotFoundAction":"Deny"}`,
		"replica-limit":   `,"paramRef":{"selector":{"matchLabels":{"for":"deployments"}},"parameterNotFoundAction":"Allow"}`,
	}
	for _, name := range names {
		if name == "no-default-namespace" {
			continue
		}
		cli.RunWith(t, policyBindings([]string{name}, "common", params[name]), "apply", "-f", "-")
	}
	cli.RunWith(t, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"no-default-namespace"},"spec":{"policyName":"no-default-namespace","validationActions":["Deny"]}}`, "apply", "-f", "-")
	allowed := func(what, stdin string, args ...string) {
		t.Helper()
		if r := team.Execute(t, stdin, args...); r.Err != nil || strings.Contains(r.Stderr, "Warning") {
			t.Errorf("%s: got %v %s", what, r.Err, r.Stderr)
		}
	}
	rejected := func(what, by, says, stdin string, args ...string) {
		t.Helper()
		r := team.Execute(t, stdin, args...)
		if r.Err == nil || !strings.Contains(r.Stderr, by) || !strings.Contains(r.Stderr, says) {
			t.Errorf("%s: got %v %s, want denied by %s with %q", what, r.Err, r.Stderr, by, says)
		}
	}
	limit := func(version, name string, max int) string {
		return fmt.Sprintf(`{"apiVersion":"policies.test/%s","kind":"ReplicaLimit","metadata":{"name":%q,"labels":{"for":"deployments"}},"spec":{"max":%d}}`, version, name, max)
	}
	create := []string{"create", "-f", "-"}

	rejected("no parameters", "required-labels", "no params found", "", "create", "deployment", "d",
		"--image=registry.example.com/a:v1")
	allowed("the parameters", "", "create", "configmap", "labels", "--from-literal=required=app,cost-center")
	rejected("a label that is missing", "required-labels", "there are no labels cost-center", "", "create",
		"deployment", "d", "--image=registry.example.com/a:v1")
	allowed("fewer labels", "", "patch", "configmap", "labels", "--type=merge", "-p", `{"data":{"required":"app"}}`)
	allowed("all labels, and no limit", "", "create", "deployment", "d", "--image=registry.example.com/a:v1", "--replicas=9")
	allowed("a limit", limit("v1", "few", 3), create...)
	rejected("a deployment beyond it", "replica-limit", "at most 3 replicas", "", "create", "deployment", "e",
		"--image=registry.example.com/a:v1", "--replicas=4")
	rejected("a scale beyond it", "replica-limit", "at most 3 replicas", "", "scale", "deployment", "d", "--replicas=4")
	allowed("a scale within it", "", "scale", "deployment", "d", "--replicas=2")
	rejected("a patch beyond it", "replica-limit", "at most 3 replicas", "", "patch", "deployment", "d", "-p",
		`{"spec":{"replicas":5}}`)
	rejected("a limit of the other version", "limits-of-limits", "no limit of 101, asked as v1beta1",
		limit("v1beta1", "many", 101), create...)
	rejected("a limit of the version", "limits-of-limits", "no limit of 101, asked as v1", limit("v1", "many", 101), create...)
	allowed("a lower one of the other version", limit("v1beta1", "one", 1), create...)
	rejected("which counts, too", "replica-limit", "at most 1 replicas", "", "scale", "deployment", "d", "--replicas=2")
	allowed("an exact policy", "", "patch", "validatingadmissionpolicy", "limits-of-limits", "--type=merge", "-p",
		`{"spec":{"matchConstraints":{"matchPolicy":"Exact"}}}`)
	allowed("is not for the other version", limit("v1beta1", "many", 101), create...)
	allowed("no limits", "", "delete", "replicalimits", "--all")
	allowed("any scale then", "", "scale", "deployment", "d", "--replicas=50")

	rejected("another registry", "image-registries", "of another registry: docker.io/a:v1", "", "run", "p",
		"--image=docker.io/a:v1")
	rejected("no version", "image-registries", "images have a version", "", "run", "p", "--image=registry.example.com/a")
	allowed("the registry", "", "run", "p", "--image=registry.example.com/a:v1", "--labels=protected=true")

	rejected("a shell", "no-shells", "no shells", "", "exec", "p", "--", "sh", "-c", "id")
	if r := team.Execute(t, "", "exec", "p", "--", "ls"); strings.Contains(r.Stderr, "denied request") {
		t.Errorf("exec of a command that is not a shell: got %s", r.Stderr)
	}
	rejected("to delete what is protected", "protected", "it is protected", "", "delete", "pod", "p")
	rejected("to delete it among others", "protected", "it is protected", "", "delete", "pods", "--all")
	allowed("no protection", "", "label", "pod", "p", "protected-")
	allowed("to delete it then", "", "delete", "pod", "p")

	allowed("an owner", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","labels":{"owner":"ada"}}}`, create...)
	allowed("the same owner", "", "label", "configmap", "c", "a=b")
	rejected("another owner", "owner-stays", "the owner stays", "", "label", "--overwrite", "configmap", "c", "owner=bob")

	claim := `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"v"},"spec":{"storageClassName":"fast","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
	allowed("a class, by the administrator", claim, "create", "--dry-run=server", "-f", "-")
	allowed("a role of another user", "", "create", "rolebinding", "bob", "--clusterrole=edit", "--user=bob")
	rejected("a class, without permission", "classes-are-granted", "bob may not use fast", claim, "create",
		"--dry-run=server", "--as=bob", "-f", "-")
	allowed("a role", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"fast"},"rules":[{"verbs":["use"],"apiGroups":["storage.k8s.io"],"resources":["storageclasses"],"resourceNames":["fast"]}]}`, create...)
	allowed("a binding of the role", "", "create", "clusterrolebinding", "fast", "--clusterrole=fast", "--user=bob")
	allowed("a class, with permission", claim, "create", "--dry-run=server", "--as=bob", "-f", "-")

	team = cli.WithNamespace("default")
	rejected("the namespace default", "no-default-namespace", "a namespace of your own", "", "create", "configmap", "c")
	rejected("a custom resource there", "no-default-namespace", "a namespace of your own", limit("v1", "x", 1), create...)
	allowed("what is left out", "", "create", "configmap", "allowed")
	allowed("what is in no namespace", "", "create", "namespace", "other")
	allowed("to warn", "", "patch", "validatingadmissionpolicybinding", "no-default-namespace", "--type=merge", "-p",
		`{"spec":{"validationActions":["Warn","Audit"]}}`)
	warned := team.Execute(t, "", "create", "configmap", "warned")
	expectParts(t, "a warning", warned.Stderr,
		"Warning: Validation failed for ValidatingAdmissionPolicy 'no-default-namespace' with binding 'no-default-namespace': use a namespace of your own")
	expectParts(t, "what is warned of", warned.Stdout, "configmap/warned created")
	allowed("to audit", "", "patch", "validatingadmissionpolicybinding", "no-default-namespace", "--type=merge", "-p",
		`{"spec":{"validationActions":["Audit"]}}`)
	allowed("what is noted", "", "create", "configmap", "noted")
}
