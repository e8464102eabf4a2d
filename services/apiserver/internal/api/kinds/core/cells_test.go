package core_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
)

// cellText returns a cell as text. An age becomes its date.
func cellText(c any) string {
	if age, ok := c.(registry.Age); ok {
		if age.Since.IsZero() {
			return age.Prefix + "never" + age.Suffix
		}
		return age.Prefix + age.Since.UTC().Format(time.DateOnly) + age.Suffix
	}
	return fmt.Sprint(c)
}

type cellTest struct {
	name, resource, object string
	want                   map[string]string
}

func runCells(t *testing.T, tests []cellTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.resource+": "+test.name, func(t *testing.T) {
			k := kindOf(t, test.resource)
			o := parse(t, k, test.object)
			for column, want := range test.want {
				if got := cellText(cell(t, k, column, o)); got != want {
					t.Errorf("%s: got %q, want %q", column, got, want)
				}
			}
		})
	}
}

func TestNodeCells(t *testing.T) {
	runCells(t, []cellTest{
		{"bare", "nodes", "metadata: {name: a}", map[string]string{
			"Name": "a", "Status": "Unknown", "Roles": "<none>", "Age": "never", "Version": "",
			"Internal-IP": "<none>", "External-IP": "<none>",
			"OS-Image": "<unknown>", "Kernel-Version": "<unknown>", "Container-Runtime": "<unknown>",
		}},
		{"cordoned worker", "nodes", `
metadata: {name: a, creationTimestamp: '2024-01-02T00:00:00Z', labels: {node-role.kubernetes.io/worker: ''}}
spec: {unschedulable: true}
status:
  conditions: [{type: MemoryPressure, status: 'True'}, {type: Ready, status: 'True'}]
  addresses: [{type: Hostname, address: h}, {type: InternalIP, address: 1.2.3.4}, {type: ExternalIP, address: 5.6.7.8}]
  nodeInfo: {kubeletVersion: v1.33.0, osImage: Linux, kernelVersion: '6.1', containerRuntimeVersion: 'containerd://2.0'}`,
			map[string]string{
				"Status": "Ready,SchedulingDisabled", "Roles": "worker", "Age": "2024-01-02", "Version": "v1.33.0",
				"Internal-IP": "1.2.3.4", "External-IP": "5.6.7.8",
				"OS-Image": "Linux", "Kernel-Version": "6.1", "Container-Runtime": "containerd://2.0",
			}},
		{"roles in order", "nodes",
			"metadata: {labels: {node-role.kubernetes.io/z: '', node-role.kubernetes.io/: '', kubernetes.io/role: b, node-role.kubernetes.io/b: x}}",
			map[string]string{"Roles": "b,z"}},
		{"not ready", "nodes", "status: {conditions: [{type: Ready, status: Unknown}]}", map[string]string{"Status": "NotReady"}},
	})
}

func TestServiceCells(t *testing.T) {
	runCells(t, []cellTest{
		{"cluster IP", "services", "spec: {type: ClusterIP, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}], selector: {b: '2', a: '1'}}",
			map[string]string{"Type": "ClusterIP", "Cluster-IP": "10.0.0.1", "External-IP": "<none>", "Port(s)": "80/TCP,53/UDP", "Selector": "a=1,b=2"}},
		{"bare", "services", "spec: {type: ClusterIP}",
			map[string]string{"Cluster-IP": "<none>", "External-IP": "<none>", "Port(s)": "<none>", "Selector": "<none>"}},
		{"headless", "services", "spec: {type: ClusterIP, clusterIP: None, clusterIPs: [None]}", map[string]string{"Cluster-IP": "None"}},
		{"external IPs", "services", "spec: {type: NodePort, externalIPs: [1.1.1.1, 2.2.2.2], ports: [{port: 80, nodePort: 30080, protocol: TCP}]}",
			map[string]string{"External-IP": "1.1.1.1,2.2.2.2", "Port(s)": "80:30080/TCP"}},
		{"pending load balancer", "services", "spec: {type: LoadBalancer}", map[string]string{"External-IP": "<pending>"}},
		{"load balancer", "services", "spec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{hostname: lb.example.com}, {ip: 5.6.7.8, hostname: other}, {ip: 5.6.7.8}]}}",
			map[string]string{"External-IP": "5.6.7.8,lb.example.com"}},
		{"load balancer with external IPs", "services", "spec: {type: LoadBalancer, externalIPs: [1.1.1.1]}\nstatus: {loadBalancer: {ingress: [{ip: 5.6.7.8}]}}",
			map[string]string{"External-IP": "5.6.7.8,1.1.1.1"}},
		{"pending load balancer with external IPs", "services", "spec: {type: LoadBalancer, externalIPs: [1.1.1.1]}", map[string]string{"External-IP": "1.1.1.1"}},
		{"external name", "services", "spec: {type: ExternalName, externalName: example.com}",
			map[string]string{"Cluster-IP": "<none>", "External-IP": "example.com"}},
		{"no type", "services", "spec: {}", map[string]string{"External-IP": "<unknown>"}},
	})
}

func TestVolumeCells(t *testing.T) {
	runCells(t, []cellTest{
		{"bound", "persistentvolumes", `
spec: {capacity: {storage: 5Gi}, accessModes: [ReadWriteMany, ReadWriteOnce, ReadWriteMany, ReadWriteOncePod, ReadOnlyMany], persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: ns, name: c}, storageClassName: fast, volumeAttributesClassName: gold, volumeMode: Block}
status: {phase: Bound, reason: why}`,
			map[string]string{
				"Capacity": "5Gi", "Access Modes": "RWO,ROX,RWX,RWOP", "Reclaim Policy": "Retain", "Status": "Bound", "Claim": "ns/c",
				"StorageClass": "fast", "VolumeAttributesClass": "gold", "Reason": "why", "VolumeMode": "Block",
			}},
		{"bare and being deleted", "persistentvolumes", "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Bound}",
			map[string]string{"Capacity": "0", "Access Modes": "", "Status": "Terminating", "Claim": "", "StorageClass": "", "VolumeAttributesClass": "<unset>", "VolumeMode": "<unset>"}},
		{"class by annotation", "persistentvolumes", "metadata: {annotations: {volume.beta.kubernetes.io/storage-class: old}}\nspec: {storageClassName: new}",
			map[string]string{"StorageClass": "old"}},
		{"bound", "persistentvolumeclaims", `
spec: {volumeName: v, storageClassName: fast, volumeAttributesClassName: gold, volumeMode: Filesystem}
status: {phase: Bound, capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce]}`,
			map[string]string{"Status": "Bound", "Volume": "v", "Capacity": "5Gi", "Access Modes": "RWO", "StorageClass": "fast", "VolumeAttributesClass": "gold", "VolumeMode": "Filesystem"}},
		{"pending", "persistentvolumeclaims", "spec: {resources: {requests: {storage: 1Gi}}}\nstatus: {phase: Pending, accessModes: [ReadWriteOnce]}",
			map[string]string{"Status": "Pending", "Volume": "", "Capacity": "", "Access Modes": "", "StorageClass": "", "VolumeAttributesClass": "<unset>", "VolumeMode": "<unset>"}},
		{"being deleted", "persistentvolumeclaims", "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}", map[string]string{"Status": "Terminating"}},
	})
}

func TestEventCells(t *testing.T) {
	runCells(t, []cellTest{
		{"without times", "events", `
metadata: {name: a}
involvedObject: {kind: Pod, name: p, fieldPath: 'spec.containers{c}'}
reason: Pulled
message: " got it\n"
type: Normal
source: {component: kubelet, host: h}
count: 1`,
			map[string]string{
				"Last Seen": "never", "Type": "Normal", "Reason": "Pulled", "Object": "pod/p", "Subobject": "spec.containers{c}",
				"Source": "kubelet, h", "Message": "got it", "First Seen": "never", "Count": "1", "Name": "a",
			}},
		{"old style", "events", "firstTimestamp: '2024-01-01T00:00:00Z'\nlastTimestamp: '2024-01-02T00:00:00Z'\ncount: 3\nsource: {component: c}",
			map[string]string{"Last Seen": "2024-01-02", "First Seen": "2024-01-01", "Count": "3", "Source": "c"}},
		{"seen once", "events", "firstTimestamp: '2024-01-01T00:00:00Z'", map[string]string{"Last Seen": "2024-01-01", "Count": "1"}},
		{"new style", "events", "eventTime: '2024-01-01T00:00:00.000001Z'\nreportingComponent: c\nreportingInstance: i\ninvolvedObject: {kind: Node}",
			map[string]string{"Last Seen": "2024-01-01", "First Seen": "2024-01-01", "Count": "1", "Source": "c, i", "Object": "node"}},
		{"series", "events", "eventTime: '2024-01-01T00:00:00.000001Z'\nseries: {count: 5, lastObservedTime: '2024-01-03T00:00:00.000001Z'}",
			map[string]string{"Last Seen": "2024-01-03", "First Seen": "2024-01-01", "Count": "5"}},
	})
}

func TestOtherCells(t *testing.T) {
	runCells(t, []cellTest{
		{"data and binary data", "configmaps", "data: {a: b, c: d}\nbinaryData: {b: AAEC}", map[string]string{"Data": "3"}},
		{"data", "secrets", "type: Opaque\ndata: {b: AAEC}", map[string]string{"Type": "Opaque", "Data": "1"}},
		{"secrets", "serviceaccounts", "secrets: [{name: a}]", map[string]string{"Secrets": "1"}},
		{"phase", "namespaces", "status: {phase: Active}", map[string]string{"Status": "Active"}},
		{"none", "endpoints", "metadata: {name: a}", map[string]string{"Endpoints": "<none>"}},
		{"not ready", "endpoints", "subsets: [{notReadyAddresses: [{ip: 1.2.3.9}], ports: [{port: 80}]}]", map[string]string{"Endpoints": ""}},
		{"addresses by port", "endpoints", "subsets: [{addresses: [{ip: 1.2.3.4}, {ip: 1.2.3.1}], ports: [{port: 80}, {port: 53}]}]",
			map[string]string{"Endpoints": "1.2.3.4:80,1.2.3.1:80,1.2.3.4:53 + 1 more..."}},
		{"addresses without ports", "endpoints", "subsets: [{addresses: [{ip: 1.2.3.4}]}, {addresses: [{ip: 'fd00::1'}], ports: [{port: 80}]}]",
			map[string]string{"Endpoints": "1.2.3.4,[fd00::1]:80"}},
		{"template", "podtemplates", "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i:1}, {name: d, image: j}]}}",
			map[string]string{"Containers": "c,d", "Images": "i:1,j", "Pod Labels": "a=b"}},
		{"counts", "replicationcontrollers", "spec: {replicas: 3, selector: {a: b}, template: {spec: {containers: [{name: c, image: i}]}}}\nstatus: {replicas: 2, readyReplicas: 1}",
			map[string]string{"Desired": "3", "Current": "2", "Ready": "1", "Containers": "c", "Images": "i", "Selector": "a=b"}},
		{"bare", "replicationcontrollers", "spec: {}", map[string]string{"Desired": "1", "Current": "0", "Ready": "0", "Containers": "", "Images": "", "Selector": "<none>"}},
		{"used and hard", "resourcequotas", "status: {hard: {pods: 5, requests.cpu: 2, limits.cpu: 4, limits.memory: 1Gi}, used: {pods: 1, limits.cpu: 500m}}",
			map[string]string{"Request": "pods: 1/5, requests.cpu: 0/2", "Limit": "limits.cpu: 500m/4, limits.memory: 0/1Gi"}},
		{"healthy", "componentstatuses", "conditions: [{type: Healthy, status: 'True', message: ok}]", map[string]string{"Status": "Healthy", "Message": "ok", "Error": ""}},
		{"unhealthy", "componentstatuses", "conditions: [{type: Healthy, status: 'False', error: refused}]", map[string]string{"Status": "Unhealthy", "Error": "refused"}},
		{"unknown", "componentstatuses", "metadata: {name: x}", map[string]string{"Name": "x", "Status": "Unknown", "Message": "", "Error": ""}},
	})
}

func TestPodCells(t *testing.T) {
	const spec = "spec: {containers: [{name: a}, {name: b}], initContainers: [{name: i}, {name: s, restartPolicy: Always}]}\n"
	const two = "spec: {containers: [{name: a}, {name: b}]}\n"
	runCells(t, []cellTest{
		{"bare", "pods", "spec: {containers: [{name: a}]}\nstatus: {phase: Pending}", map[string]string{
			"Ready": "0/1", "Status": "Pending", "Restarts": "0", "IP": "<none>", "Node": "<none>", "Nominated Node": "<none>", "Readiness Gates": "<none>",
		}},
		{"where", "pods", "spec: {nodeName: node, readinessGates: [{conditionType: x}, {conditionType: q}, {conditionType: z}]}\nstatus: {podIP: 9.9.9.9, podIPs: [{ip: 1.2.3.4}], nominatedNodeName: m, conditions: [{type: x, status: 'True'}, {type: q, status: 'False'}]}",
			map[string]string{"IP": "1.2.3.4", "Node": "node", "Nominated Node": "m", "Readiness Gates": "1/3"}},
		{"reason of the status", "pods", two + "status: {phase: Failed, reason: Evicted}", map[string]string{"Status": "Evicted"}},
		{"gated", "pods", two + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}", map[string]string{"Status": "SchedulingGated"}},
		{"running with restarts", "pods", two + `status:
  phase: Running
  containerStatuses:
  - {name: a, ready: true, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-03T00:00:00Z'}}}
  - {name: b, ready: true, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-02T00:00:00Z'}}}`,
			map[string]string{"Ready": "2/2", "Status": "Running", "Restarts": "3 (2024-01-03 ago)"}},
		{"restarts at an unknown time", "pods", two + "status: {phase: Running, containerStatuses: [{name: a, restartCount: 2, ready: true, state: {running: {}}}]}",
			map[string]string{"Ready": "1/2", "Restarts": "2"}},
		{"the first container's reason counts", "pods", two + `status:
  phase: Pending
  containerStatuses:
  - {name: a, state: {waiting: {reason: CrashLoopBackOff}}}
  - {name: b, state: {waiting: {reason: ImagePullBackOff}}}`, map[string]string{"Status": "CrashLoopBackOff"}},
		{"ended by a signal", "pods", two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 137, signal: 9}}}]}", map[string]string{"Status": "Signal:9"}},
		{"ended with a code", "pods", two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3}}}]}", map[string]string{"Status": "ExitCode:3"}},
		{"ended with a reason", "pods", two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3, reason: Error}}}]}", map[string]string{"Status": "Error"}},
		{"one completed, one running and the pod ready", "pods", two + `status:
  phase: Running
  conditions: [{type: Ready, status: 'True'}]
  containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]`,
			map[string]string{"Ready": "1/2", "Status": "Running"}},
		{"one completed, one running and the pod not ready", "pods", two + `status:
  phase: Running
  containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]`,
			map[string]string{"Status": "NotReady"}},
		{"completed", "pods", two + "status: {phase: Succeeded, containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}]}", map[string]string{"Status": "Completed"}},
		{"being deleted", "pods", "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\n" + two + "status: {phase: Running}", map[string]string{"Status": "Terminating"}},
		{"ended and being deleted", "pods", "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\n" + two + "status: {phase: Succeeded}", map[string]string{"Status": "Succeeded"}},
		{"lost", "pods", "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\n" + two + "status: {phase: Running, reason: NodeLost}", map[string]string{"Status": "Unknown"}},
		{"initializing", "pods", spec + "status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 4, state: {running: {}}}], containerStatuses: [{name: a, restartCount: 1, state: {waiting: {reason: PodInitializing}}}]}",
			map[string]string{"Ready": "0/3", "Status": "Init:0/2", "Restarts": "4"}},
		{"init container waits", "pods", spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: ImagePullBackOff}}}]}", map[string]string{"Status": "Init:ImagePullBackOff"}},
		{"init container waits for others", "pods", spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {}}}, {name: s, state: {waiting: {reason: PodInitializing}}}]}", map[string]string{"Status": "Init:1/2"}},
		{"init container failed", "pods", spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1, reason: Error}}}]}", map[string]string{"Status": "Init:Error"}},
		{"init container failed with a code", "pods", spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 7}}}]}", map[string]string{"Status": "Init:ExitCode:7"}},
		{"init container failed by a signal", "pods", spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 137, signal: 9}}}]}", map[string]string{"Status": "Init:Signal:9"}},
		{"sidecar runs", "pods", spec + `status:
  phase: Running
  initContainerStatuses:
  - {name: i, restartCount: 4, state: {terminated: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-05T00:00:00Z'}}}
  - {name: s, restartCount: 2, started: true, ready: true, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-02T00:00:00Z'}}}
  containerStatuses:
  - {name: a, restartCount: 1, ready: true, state: {running: {}}}
  - {name: b, state: {running: {}}}`, map[string]string{"Ready": "2/3", "Status": "Running", "Restarts": "3 (2024-01-02 ago)"}},
		{"a sidecar restarts after the pod was initialized", "pods", spec + `status:
  phase: Running
  conditions: [{type: Initialized, status: 'True'}]
  initContainerStatuses:
  - {name: i, restartCount: 4, state: {terminated: {}}}
  - {name: s, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}}
  containerStatuses:
  - {name: a, ready: true, state: {running: {}}}
  - {name: b, ready: true, state: {running: {}}}`, map[string]string{"Ready": "2/3", "Status": "Init:CrashLoopBackOff", "Restarts": "2"}},
	})
}

func TestPodRowConditions(t *testing.T) {
	k := kindOf(t, "pods")
	for phase, want := range map[string]string{
		"Running":   "",
		"Succeeded": "The pod has completed successfully.",
		"Failed":    "The pod failed.",
	} {
		got := k.Presentation.RowConditions(parse(t, k, "status: {phase: "+phase+"}"))
		if want == "" {
			if got != nil {
				t.Errorf("%s: got %v, want nil", phase, got)
			}
			continue
		}
		if len(got) != 1 || got[0] != (metav1.TableRowCondition{Type: "Completed", Status: "True", Reason: phase, Message: want}) {
			t.Errorf("%s: got %v", phase, got)
		}
	}
}
