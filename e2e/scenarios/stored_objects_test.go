package scenarios

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// storedKind is an object and where Kubernetes 1.33 stores it.
type storedKind struct {
	manifest string
	resource string // "group/version/resource", no group for core
	key      string // below /registry/
	version  string // group version of the stored form
	json     bool   // not protobuf: kinds of servers that are built in
}

// storedObjects has objects of all kinds. Some are stored under historical names or in a version
// other than the served one. Namespaced objects are in the namespace "ns".
func storedObjects() []storedKind {
	return []storedKind{
		{resource: "v1/namespaces", key: "namespaces/o", version: "v1", manifest: `{kind: Namespace}`},
		{resource: "v1/nodes", key: "minions/o", version: "v1", manifest: `{kind: Node}`},
		{resource: "v1/configmaps", key: "configmaps/ns/o", version: "v1", manifest: `{kind: ConfigMap, data: {a: b}}`},
		{resource: "v1/secrets", key: "secrets/ns/o", version: "v1", manifest: `{kind: Secret, stringData: {a: b}}`},
		{
			resource: "v1/pods",
			key:      "pods/ns/o",
			version:  "v1",
			manifest: `{kind: Pod, spec: {containers: [{name: c, image: i}]}}`,
		},
		{
			resource: "v1/services",
			key:      "services/specs/ns/o",
			version:  "v1",
			manifest: `{kind: Service, spec: {clusterIP: None, ports: [{port: 80}]}}`,
		},
		{resource: "v1/endpoints", key: "services/endpoints/ns/o", version: "v1", manifest: `{kind: Endpoints}`},
		{
			resource: "v1/replicationcontrollers",
			key:      "controllers/ns/o",
			version:  "v1",
			manifest: `{kind: ReplicationController, spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		},
		{
			resource: "v1/persistentvolumes",
			key:      "persistentvolumes/o",
			version:  "v1",
			manifest: `{kind: PersistentVolume, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}}`,
		},
		{
			resource: "v1/persistentvolumeclaims",
			key:      "persistentvolumeclaims/ns/o",
			version:  "v1",
			manifest: `{kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
		},
		{
			resource: "v1/podtemplates",
			key:      "podtemplates/ns/o",
			version:  "v1",
			manifest: `{kind: PodTemplate, template: {spec: {containers: [{name: c, image: i}]}}}`,
		},
		{
			resource: "v1/limitranges",
			key:      "limitranges/ns/o",
			version:  "v1",
			manifest: `{kind: LimitRange, spec: {limits: [{type: Pod, max: {cpu: "1"}}]}}`,
		},
		{
			resource: "v1/resourcequotas",
			key:      "resourcequotas/ns/o",
			version:  "v1",
			manifest: `{kind: ResourceQuota, spec: {hard: {secrets: "100"}}}`,
		},
		{resource: "v1/serviceaccounts", key: "serviceaccounts/ns/o", version: "v1", manifest: `{kind: ServiceAccount}`},
		{
			resource: "v1/events",
			key:      "events/ns/o",
			version:  "v1",
			manifest: `{kind: Event, involvedObject: {namespace: ns, name: x}, reason: r}`,
		},
		{
			resource: "events.k8s.io/v1/events",
			key:      "events/ns/p",
			version:  "v1",
			manifest: `{kind: Event, metadata: {name: p}, eventTime: "2025-01-01T00:00:00.000000Z", reportingController: c.example.org/x, reportingInstance: i, action: a, reason: r, type: Normal, regarding: {namespace: ns, name: x}}`,
		},
		{
			resource: "apps/v1/deployments",
			key:      "deployments/ns/o",
			version:  "apps/v1",
			manifest: `{kind: Deployment, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		},
		{
			resource: "apps/v1/replicasets",
			key:      "replicasets/ns/o",
			version:  "apps/v1",
			manifest: `{kind: ReplicaSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		},
		{
			resource: "apps/v1/statefulsets",
			key:      "statefulsets/ns/o",
			version:  "apps/v1",
			manifest: `{kind: StatefulSet, spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		},
		{
			resource: "apps/v1/daemonsets",
			key:      "daemonsets/ns/o",
			version:  "apps/v1",
			manifest: `{kind: DaemonSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		},
		{
			resource: "apps/v1/controllerrevisions",
			key:      "controllerrevisions/ns/o",
			version:  "apps/v1",
			manifest: `{kind: ControllerRevision, revision: 1, data: {a: b}}`,
		},
		{
			resource: "batch/v1/jobs",
			key:      "jobs/ns/o",
			version:  "batch/v1",
			manifest: `{kind: Job, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`,
		},
		{
			resource: "batch/v1/cronjobs",
			key:      "cronjobs/ns/o",
			version:  "batch/v1",
			manifest: `{kind: CronJob, spec: {schedule: "@daily", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}`,
		},
		{
			resource: "autoscaling/v1/horizontalpodautoscalers",
			key:      "horizontalpodautoscalers/ns/o",
			version:  "autoscaling/v2",
			manifest: `{kind: HorizontalPodAutoscaler, spec: {maxReplicas: 3, targetCPUUtilizationPercentage: 50, scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}}}`,
		},
		{
			resource: "policy/v1/poddisruptionbudgets",
			key:      "poddisruptionbudgets/ns/o",
			version:  "policy/v1",
			manifest: `{kind: PodDisruptionBudget, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}`,
		},
		{
			resource: "networking.k8s.io/v1/ingresses",
			key:      "ingress/ns/o",
			version:  "networking.k8s.io/v1",
			manifest: `{kind: Ingress, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`,
		},
		{
			resource: "networking.k8s.io/v1/ingressclasses",
			key:      "ingressclasses/o",
			version:  "networking.k8s.io/v1",
			manifest: `{kind: IngressClass, spec: {controller: example.org/c}}`,
		},
		{
			resource: "networking.k8s.io/v1/networkpolicies",
			key:      "networkpolicies/ns/o",
			version:  "networking.k8s.io/v1",
			manifest: `{kind: NetworkPolicy, spec: {podSelector: {}}}`,
		},
		{
			resource: "networking.k8s.io/v1/ipaddresses",
			key:      "ipaddresses/10.9.8.7",
			version:  "networking.k8s.io/v1beta1",
			manifest: `{kind: IPAddress, metadata: {name: 10.9.8.7}, spec: {parentRef: {resource: services, namespace: ns, name: o}}}`,
		},
		{
			resource: "networking.k8s.io/v1/servicecidrs",
			key:      "servicecidrs/o",
			version:  "networking.k8s.io/v1beta1",
			manifest: `{kind: ServiceCIDR, spec: {cidrs: [10.9.0.0/16]}}`,
		},
		{
			resource: "rbac.authorization.k8s.io/v1/roles",
			key:      "roles/ns/o",
			version:  "rbac.authorization.k8s.io/v1",
			manifest: `{kind: Role, rules: []}`,
		},
		{
			resource: "rbac.authorization.k8s.io/v1/rolebindings",
			key:      "rolebindings/ns/o",
			version:  "rbac.authorization.k8s.io/v1",
			manifest: `{kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}`,
		},
		{
			resource: "rbac.authorization.k8s.io/v1/clusterroles",
			key:      "clusterroles/o",
			version:  "rbac.authorization.k8s.io/v1",
			manifest: `{kind: ClusterRole, rules: []}`,
		},
		{
			resource: "rbac.authorization.k8s.io/v1/clusterrolebindings",
			key:      "clusterrolebindings/o",
			version:  "rbac.authorization.k8s.io/v1",
			manifest: `{kind: ClusterRoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}}`,
		},
		{
			resource: "storage.k8s.io/v1/storageclasses",
			key:      "storageclasses/o",
			version:  "storage.k8s.io/v1",
			manifest: `{kind: StorageClass, provisioner: example.org/p}`,
		},
		{
			resource: "storage.k8s.io/v1/csidrivers",
			key:      "csidrivers/o",
			version:  "storage.k8s.io/v1",
			manifest: `{kind: CSIDriver, spec: {}}`,
		},
		{
			resource: "storage.k8s.io/v1/csinodes",
			key:      "csinodes/o",
			version:  "storage.k8s.io/v1",
			manifest: `{kind: CSINode, spec: {drivers: []}}`,
		},
		{
			resource: "storage.k8s.io/v1/volumeattachments",
			key:      "volumeattachments/o",
			version:  "storage.k8s.io/v1",
			manifest: `{kind: VolumeAttachment, spec: {attacher: a, nodeName: worker, source: {persistentVolumeName: v}}}`,
		},
		{
			resource: "storage.k8s.io/v1/csistoragecapacities",
			key:      "csistoragecapacities/ns/o",
			version:  "storage.k8s.io/v1",
			manifest: `{kind: CSIStorageCapacity, storageClassName: c}`,
		},
		{
			resource: "scheduling.k8s.io/v1/priorityclasses",
			key:      "priorityclasses/o",
			version:  "scheduling.k8s.io/v1",
			manifest: `{kind: PriorityClass, value: 7}`,
		},
		{
			resource: "coordination.k8s.io/v1/leases",
			key:      "leases/ns/o",
			version:  "coordination.k8s.io/v1",
			manifest: `{kind: Lease, spec: {holderIdentity: h}}`,
		},
		{
			resource: "node.k8s.io/v1/runtimeclasses",
			key:      "runtimeclasses/o",
			version:  "node.k8s.io/v1",
			manifest: `{kind: RuntimeClass, handler: h}`,
		},
		{
			resource: "discovery.k8s.io/v1/endpointslices",
			key:      "endpointslices/ns/o",
			version:  "discovery.k8s.io/v1",
			manifest: `{kind: EndpointSlice, addressType: IPv4, endpoints: []}`,
		},
		{
			resource: "flowcontrol.apiserver.k8s.io/v1/flowschemas",
			key:      "flowschemas/o",
			version:  "flowcontrol.apiserver.k8s.io/v1",
			manifest: `{kind: FlowSchema, spec: {matchingPrecedence: 900, priorityLevelConfiguration: {name: o}}}`,
		},
		{
			resource: "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
			key:      "prioritylevelconfigurations/o",
			version:  "flowcontrol.apiserver.k8s.io/v1",
			manifest: `{kind: PriorityLevelConfiguration, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}`,
		},
		{
			resource: "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
			key:      "validatingadmissionpolicies/o",
			version:  "admissionregistration.k8s.io/v1",
			manifest: `{kind: ValidatingAdmissionPolicy, spec: {matchConstraints: {resourceRules: [{apiGroups: [example.org], apiVersions: [v1], resources: [things], operations: [CREATE]}]}, validations: [{expression: "true"}]}}`,
		},
		{
			resource: "apiregistration.k8s.io/v1/apiservices",
			key:      "apiregistration.k8s.io/apiservices/v9.e2e.example.org",
			version:  "apiregistration.k8s.io/v1",
			json:     true,
			manifest: `{kind: APIService, metadata: {name: v9.e2e.example.org}, spec: {group: e2e.example.org, version: v9, groupPriorityMinimum: 100, versionPriority: 10, service: {namespace: ns, name: s}, insecureSkipTLSVerify: true}}`,
		},
		{
			resource: "apiextensions.k8s.io/v1/customresourcedefinitions",
			key:      "apiextensions.k8s.io/customresourcedefinitions/things.e2e.example.org",
			version:  "apiextensions.k8s.io/v1beta1",
			json:     true,
			manifest: `{kind: CustomResourceDefinition, metadata: {name: things.e2e.example.org}, spec: {group: e2e.example.org, scope: Namespaced, names: {plural: things, kind: Thing}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
		},
	}
}

func (s storedKind) groupVersionResource() schema.GroupVersionResource {
	parts := strings.Split(s.resource, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

// newObject returns the manifest with the common metadata.
func (s storedKind) newObject(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(s.manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetAPIVersion(s.groupVersionResource().GroupVersion().String())
	if object.GetName() == "" {
		object.SetName("o")
	}
	if strings.Contains(s.key, "/ns/") {
		object.SetNamespace("ns")
	}
	return object
}
