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

// cellCase is an object with the expected text of some cells.
type cellCase struct {
	name, resource, object string
	want                   map[string]string
}

// checkCells checks the cells of objects.
func checkCells(t *testing.T, tests []cellCase) {
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

// TestNodeCellsShowStatusAndAddresses checks the cells of nodes.
func TestNodeCellsShowStatusAndAddresses(t *testing.T) {
	checkCells(t, []cellCase{
		{name: "empty", resource: "nodes", object: "metadata: {name: a}", want: map[string]string{
			"Name": "a", "Status": "Unknown", "Roles": "<none>", "Age": "never", "Version": "",
			"Internal-IP": "<none>", "External-IP": "<none>",
			"OS-Image": "<unknown>", "Kernel-Version": "<unknown>", "Container-Runtime": "<unknown>",
		}},
		{name: "cordoned worker", resource: "nodes", object: `
metadata: {name: a, creationTimestamp: '2024-01-02T00:00:00Z', labels: {node-role.kubernetes.io/worker: ''}}
spec: {unschedulable: true}
status:
  conditions: [{type: MemoryPressure, status: 'True'}, {type: Ready, status: 'True'}]
  addresses: [{type: Hostname, address: h}, {type: InternalIP, address: 1.2.3.4}, {type: ExternalIP, address: 5.6.7.8}]
  nodeInfo: {kubeletVersion: v1.33.0, osImage: Linux, kernelVersion: '6.1', containerRuntimeVersion: 'containerd://2.0'}`,
			want: map[string]string{
				"Status": "Ready,SchedulingDisabled", "Roles": "worker", "Age": "2024-01-02", "Version": "v1.33.0",
				"Internal-IP": "1.2.3.4", "External-IP": "5.6.7.8",
				"OS-Image": "Linux", "Kernel-Version": "6.1", "Container-Runtime": "containerd://2.0",
			}},
		{name: "roles in order", resource: "nodes",
			object: "metadata: {labels: {node-role.kubernetes.io/z: '', node-role.kubernetes.io/: '', kubernetes.io/role: b, node-role.kubernetes.io/b: x}}",
			want:   map[string]string{"Roles": "b,z"}},
		{name: "not ready", resource: "nodes", object: "status: {conditions: [{type: Ready, status: Unknown}]}",
			want: map[string]string{"Status": "NotReady"}},
	})
}

// TestServiceCellsShowAddressesAndPorts checks the cells of services.
func TestServiceCellsShowAddressesAndPorts(t *testing.T) {
	checkCells(t, []cellCase{
		{
			name:     "cluster IP",
			resource: "services",
			object:   "spec: {type: ClusterIP, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}], selector: {b: '2', a: '1'}}",
			want: map[string]string{
				"Type":        "ClusterIP",
				"Cluster-IP":  "10.0.0.1",
				"External-IP": "<none>",
				"Port(s)":     "80/TCP,53/UDP",
				"Selector":    "a=1,b=2",
			},
		},
		{name: "empty", resource: "services", object: "spec: {type: ClusterIP}",
			want: map[string]string{"Cluster-IP": "<none>", "External-IP": "<none>", "Port(s)": "<none>", "Selector": "<none>"}},
		{name: "headless", resource: "services", object: "spec: {type: ClusterIP, clusterIP: None, clusterIPs: [None]}",
			want: map[string]string{"Cluster-IP": "None"}},
		{
			name:     "external IPs",
			resource: "services",
			object:   "spec: {type: NodePort, externalIPs: [1.1.1.1, 2.2.2.2], ports: [{port: 80, nodePort: 30080, protocol: TCP}]}",
			want:     map[string]string{"External-IP": "1.1.1.1,2.2.2.2", "Port(s)": "80:30080/TCP"},
		},
		{name: "pending load balancer", resource: "services", object: "spec: {type: LoadBalancer}",
			want: map[string]string{"External-IP": "<pending>"}},
		{
			name:     "load balancer",
			resource: "services",
			object:   "spec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{hostname: lb.example.com}, {ip: 5.6.7.8, hostname: other}, {ip: 5.6.7.8}]}}",
			want:     map[string]string{"External-IP": "5.6.7.8,lb.example.com"},
		},
		{
			name:     "load balancer with external IPs",
			resource: "services",
			object:   "spec: {type: LoadBalancer, externalIPs: [1.1.1.1]}\nstatus: {loadBalancer: {ingress: [{ip: 5.6.7.8}]}}",
			want:     map[string]string{"External-IP": "5.6.7.8,1.1.1.1"},
		},
		{name: "pending load balancer with external IPs", resource: "services",
			object: "spec: {type: LoadBalancer, externalIPs: [1.1.1.1]}", want: map[string]string{"External-IP": "1.1.1.1"}},
		{name: "external name", resource: "services", object: "spec: {type: ExternalName, externalName: example.com}",
			want: map[string]string{"Cluster-IP": "<none>", "External-IP": "example.com"}},
		{name: "no type", resource: "services", object: "spec: {}", want: map[string]string{"External-IP": "<unknown>"}},
	})
}

// TestVolumeCellsShowStatusAndClaim checks the cells of volumes and claims.
func TestVolumeCellsShowStatusAndClaim(t *testing.T) {
	checkCells(t, []cellCase{
		{name: "bound", resource: "persistentvolumes", object: `
spec: {capacity: {storage: 5Gi}, accessModes: [ReadWriteMany, ReadWriteOnce, ReadWriteMany, ReadWriteOncePod, ReadOnlyMany], persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: ns, name: c}, storageClassName: fast, volumeAttributesClassName: gold, volumeMode: Block}
status: {phase: Bound, reason: why}`,
			want: map[string]string{
				"Capacity": "5Gi", "Access Modes": "RWO,ROX,RWX,RWOP", "Reclaim Policy": "Retain", "Status": "Bound", "Claim": "ns/c",
				"StorageClass": "fast", "VolumeAttributesClass": "gold", "Reason": "why", "VolumeMode": "Block",
			}},
		{
			name:     "empty and being deleted",
			resource: "persistentvolumes",
			object:   "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Bound}",
			want: map[string]string{
				"Capacity":              "0",
				"Access Modes":          "",
				"Status":                "Terminating",
				"Claim":                 "",
				"StorageClass":          "",
				"VolumeAttributesClass": "<unset>",
				"VolumeMode":            "<unset>",
			},
		},
		{
			name:     "class by annotation",
			resource: "persistentvolumes",
			object:   "metadata: {annotations: {volume.beta.kubernetes.io/storage-class: old}}\nspec: {storageClassName: new}",
			want:     map[string]string{"StorageClass": "old"},
		},
		{name: "bound", resource: "persistentvolumeclaims", object: `
spec: {volumeName: v, storageClassName: fast, volumeAttributesClassName: gold, volumeMode: Filesystem}
status: {phase: Bound, capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce]}`,
			want: map[string]string{
				"Status":                "Bound",
				"Volume":                "v",
				"Capacity":              "5Gi",
				"Access Modes":          "RWO",
				"StorageClass":          "fast",
				"VolumeAttributesClass": "gold",
				"VolumeMode":            "Filesystem",
			}},
		{
			name:     "pending",
			resource: "persistentvolumeclaims",
			object:   "spec: {resources: {requests: {storage: 1Gi}}}\nstatus: {phase: Pending, accessModes: [ReadWriteOnce]}",
			want: map[string]string{
				"Status":                "Pending",
				"Volume":                "",
				"Capacity":              "",
				"Access Modes":          "",
				"StorageClass":          "",
				"VolumeAttributesClass": "<unset>",
				"VolumeMode":            "<unset>",
			},
		},
		{name: "being deleted", resource: "persistentvolumeclaims",
			object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}", want: map[string]string{"Status": "Terminating"}},
	})
}

// TestEventCellsShowTimesOfBothStyles checks the cells of events of both styles.
func TestEventCellsShowTimesOfBothStyles(t *testing.T) {
	checkCells(t, []cellCase{
		{name: "without times", resource: "events", object: `
metadata: {name: a}
involvedObject: {kind: Pod, name: p, fieldPath: 'spec.containers{c}'}
reason: Pulled
message: " got it\n"
type: Normal
source: {component: kubelet, host: h}
count: 1`,
			want: map[string]string{
				"Last Seen": "never", "Type": "Normal", "Reason": "Pulled", "Object": "pod/p", "Subobject": "spec.containers{c}",
				"Source": "kubelet, h", "Message": "got it", "First Seen": "never", "Count": "1", "Name": "a",
			}},
		{
			name:     "old style",
			resource: "events",
			object:   "firstTimestamp: '2024-01-01T00:00:00Z'\nlastTimestamp: '2024-01-02T00:00:00Z'\ncount: 3\nsource: {component: c}",
			want:     map[string]string{"Last Seen": "2024-01-02", "First Seen": "2024-01-01", "Count": "3", "Source": "c"},
		},
		{name: "seen once", resource: "events", object: "firstTimestamp: '2024-01-01T00:00:00Z'",
			want: map[string]string{"Last Seen": "2024-01-01", "Count": "1"}},
		{
			name:     "new style",
			resource: "events",
			object:   "eventTime: '2024-01-01T00:00:00.000001Z'\nreportingComponent: c\nreportingInstance: i\ninvolvedObject: {kind: Node}",
			want: map[string]string{
				"Last Seen":  "2024-01-01",
				"First Seen": "2024-01-01",
				"Count":      "1",
				"Source":     "c, i",
				"Object":     "node",
			},
		},
		{
			name:     "series",
			resource: "events",
			object:   "eventTime: '2024-01-01T00:00:00.000001Z'\nseries: {count: 5, lastObservedTime: '2024-01-03T00:00:00.000001Z'}",
			want:     map[string]string{"Last Seen": "2024-01-03", "First Seen": "2024-01-01", "Count": "5"},
		},
	})
}

// TestOtherCellsShowCounts checks the cells of the other kinds.
func TestOtherCellsShowCounts(t *testing.T) {
	checkCells(t, []cellCase{
		{name: "data and binary data", resource: "configmaps", object: "data: {a: b, c: d}\nbinaryData: {b: AAEC}",
			want: map[string]string{"Data": "3"}},
		{
			name:     "data",
			resource: "secrets",
			object:   "type: Opaque\ndata: {b: AAEC}",
			want:     map[string]string{"Type": "Opaque", "Data": "1"},
		},
		{name: "secrets", resource: "serviceaccounts", object: "secrets: [{name: a}]", want: map[string]string{"Secrets": "1"}},
		{name: "phase", resource: "namespaces", object: "status: {phase: Active}", want: map[string]string{"Status": "Active"}},
		{name: "none", resource: "endpoints", object: "metadata: {name: a}", want: map[string]string{"Endpoints": "<none>"}},
		{name: "not ready", resource: "endpoints", object: "subsets: [{notReadyAddresses: [{ip: 1.2.3.9}], ports: [{port: 80}]}]",
			want: map[string]string{"Endpoints": ""}},
		{
			name:     "addresses by port",
			resource: "endpoints",
			object:   "subsets: [{addresses: [{ip: 1.2.3.4}, {ip: 1.2.3.1}], ports: [{port: 80}, {port: 53}]}]",
			want:     map[string]string{"Endpoints": "1.2.3.4:80,1.2.3.1:80,1.2.3.4:53 + 1 more..."},
		},
		{
			name:     "addresses without ports",
			resource: "endpoints",
			object:   "subsets: [{addresses: [{ip: 1.2.3.4}]}, {addresses: [{ip: 'fd00::1'}], ports: [{port: 80}]}]",
			want:     map[string]string{"Endpoints": "1.2.3.4,[fd00::1]:80"},
		},
		{
			name:     "template",
			resource: "podtemplates",
			object:   "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i:1}, {name: d, image: j}]}}",
			want:     map[string]string{"Containers": "c,d", "Images": "i:1,j", "Pod Labels": "a=b"},
		},
		{
			name:     "counts",
			resource: "replicationcontrollers",
			object:   "spec: {replicas: 3, selector: {a: b}, template: {spec: {containers: [{name: c, image: i}]}}}\nstatus: {replicas: 2, readyReplicas: 1}",
			want: map[string]string{
				"Desired":    "3",
				"Current":    "2",
				"Ready":      "1",
				"Containers": "c",
				"Images":     "i",
				"Selector":   "a=b",
			},
		},
		{name: "empty", resource: "replicationcontrollers", object: "spec: {}",
			want: map[string]string{
				"Desired":    "1",
				"Current":    "0",
				"Ready":      "0",
				"Containers": "",
				"Images":     "",
				"Selector":   "<none>",
			}},
		{
			name:     "used and hard",
			resource: "resourcequotas",
			object:   "status: {hard: {pods: 5, requests.cpu: 2, limits.cpu: 4, limits.memory: 1Gi}, used: {pods: 1, limits.cpu: 500m}}",
			want:     map[string]string{"Request": "pods: 1/5, requests.cpu: 0/2", "Limit": "limits.cpu: 500m/4, limits.memory: 0/1Gi"},
		},
		{name: "healthy", resource: "componentstatuses", object: "conditions: [{type: Healthy, status: 'True', message: ok}]",
			want: map[string]string{"Status": "Healthy", "Message": "ok", "Error": ""}},
		{name: "unhealthy", resource: "componentstatuses",
			object: "conditions: [{type: Healthy, status: 'False', error: refused}]",
			want:   map[string]string{"Status": "Unhealthy", "Error": "refused"}},
		{name: "unknown", resource: "componentstatuses", object: "metadata: {name: x}",
			want: map[string]string{"Name": "x", "Status": "Unknown", "Message": "", "Error": ""}},
	})
}

// TestPodCellsShowStatusOfContainers checks the cells of pods, most of all their status.
func TestPodCellsShowStatusOfContainers(t *testing.T) {
	const spec = "spec: {containers: [{name: a}, {name: b}], initContainers: [{name: i}, {name: s, restartPolicy: Always}]}\n"
	const two = "spec: {containers: [{name: a}, {name: b}]}\n"
	checkCells(t, []cellCase{
		{name: "empty", resource: "pods", object: "spec: {containers: [{name: a}]}\nstatus: {phase: Pending}", want: map[string]string{
			"Ready":           "0/1",
			"Status":          "Pending",
			"Restarts":        "0",
			"IP":              "<none>",
			"Node":            "<none>",
			"Nominated Node":  "<none>",
			"Readiness Gates": "<none>",
		}},
		{
			name:     "addresses and nodes",
			resource: "pods",
			object:   "spec: {nodeName: node, readinessGates: [{conditionType: x}, {conditionType: q}, {conditionType: z}]}\nstatus: {podIP: 9.9.9.9, podIPs: [{ip: 1.2.3.4}], nominatedNodeName: m, conditions: [{type: x, status: 'True'}, {type: q, status: 'False'}]}",
			want:     map[string]string{"IP": "1.2.3.4", "Node": "node", "Nominated Node": "m", "Readiness Gates": "1/3"},
		},
		{name: "reason of the status", resource: "pods", object: two + "status: {phase: Failed, reason: Evicted}",
			want: map[string]string{"Status": "Evicted"}},
		{name: "gated", resource: "pods",
			object: two + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}",
			want:   map[string]string{"Status": "SchedulingGated"}},
		{name: "running with restarts", resource: "pods", object: two + `status:
  phase: Running
  containerStatuses:
  - {name: a, ready: true, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-03T00:00:00Z'}}}
  - {name: b, ready: true, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-02T00:00:00Z'}}}`,
			want: map[string]string{"Ready": "2/2", "Status": "Running", "Restarts": "3 (2024-01-03 ago)"}},
		{
			name:     "restarts at an unknown time",
			resource: "pods",
			object:   two + "status: {phase: Running, containerStatuses: [{name: a, restartCount: 2, ready: true, state: {running: {}}}]}",
			want:     map[string]string{"Ready": "1/2", "Restarts": "2"},
		},
		{name: "the first container's reason counts", resource: "pods", object: two + `status:
  phase: Pending
  containerStatuses:
  - {name: a, state: {waiting: {reason: CrashLoopBackOff}}}
  - {name: b, state: {waiting: {reason: ImagePullBackOff}}}`, want: map[string]string{"Status": "CrashLoopBackOff"}},
		{name: "ended by a signal", resource: "pods",
			object: two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 137, signal: 9}}}]}",
			want:   map[string]string{"Status": "Signal:9"}},
		{name: "ended with a code", resource: "pods",
			object: two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3}}}]}",
			want:   map[string]string{"Status": "ExitCode:3"}},
		{name: "ended with a reason", resource: "pods",
			object: two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3, reason: Error}}}]}",
			want:   map[string]string{"Status": "Error"}},
		{name: "one completed, one running and the pod ready", resource: "pods", object: two + `status:
  phase: Running
  conditions: [{type: Ready, status: 'True'}]
  containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]`,
			want: map[string]string{"Ready": "1/2", "Status": "Running"}},
		{name: "one completed, one running and the pod not ready", resource: "pods", object: two + `status:
  phase: Running
  containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]`,
			want: map[string]string{"Status": "NotReady"}},
		{name: "completed", resource: "pods",
			object: two + "status: {phase: Succeeded, containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}]}",
			want:   map[string]string{"Status": "Completed"}},
		{name: "being deleted", resource: "pods",
			object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\n" + two + "status: {phase: Running}",
			want:   map[string]string{"Status": "Terminating"}},
		{name: "ended and being deleted", resource: "pods",
			object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\n" + two + "status: {phase: Succeeded}",
			want:   map[string]string{"Status": "Succeeded"}},
		{name: "lost", resource: "pods",
			object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\n" + two + "status: {phase: Running, reason: NodeLost}",
			want:   map[string]string{"Status": "Unknown"}},
		{
			name:     "initializing",
			resource: "pods",
			object:   spec + "status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 4, state: {running: {}}}], containerStatuses: [{name: a, restartCount: 1, state: {waiting: {reason: PodInitializing}}}]}",
			want:     map[string]string{"Ready": "0/3", "Status": "Init:0/2", "Restarts": "4"},
		},
		{name: "init container waits", resource: "pods",
			object: spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: ImagePullBackOff}}}]}",
			want:   map[string]string{"Status": "Init:ImagePullBackOff"}},
		{name: "init container waits for others", resource: "pods",
			object: spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {}}}, {name: s, state: {waiting: {reason: PodInitializing}}}]}",
			want:   map[string]string{"Status": "Init:1/2"}},
		{name: "init container failed", resource: "pods",
			object: spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1, reason: Error}}}]}",
			want:   map[string]string{"Status": "Init:Error"}},
		{name: "init container failed with a code", resource: "pods",
			object: spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 7}}}]}",
			want:   map[string]string{"Status": "Init:ExitCode:7"}},
		{name: "init container failed by a signal", resource: "pods",
			object: spec + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 137, signal: 9}}}]}",
			want:   map[string]string{"Status": "Init:Signal:9"}},
		{name: "sidecar runs", resource: "pods", object: spec + `status:
  phase: Running
  initContainerStatuses:
  - {name: i, restartCount: 4, state: {terminated: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-05T00:00:00Z'}}}
  - {name: s, restartCount: 2, started: true, ready: true, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2024-01-02T00:00:00Z'}}}
  containerStatuses:
  - {name: a, restartCount: 1, ready: true, state: {running: {}}}
  - {name: b, state: {running: {}}}`, want: map[string]string{"Ready": "2/3", "Status": "Running", "Restarts": "3 (2024-01-02 ago)"}},
		{name: "a sidecar restarts after the pod was initialized", resource: "pods", object: spec + `status:
  phase: Running
  conditions: [{type: Initialized, status: 'True'}]
  initContainerStatuses:
  - {name: i, restartCount: 4, state: {terminated: {}}}
  - {name: s, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}}
  containerStatuses:
  - {name: a, ready: true, state: {running: {}}}
  - {name: b, ready: true, state: {running: {}}}`, want: map[string]string{"Ready": "2/3", "Status": "Init:CrashLoopBackOff", "Restarts": "2"}},
	})
}

// TestCompletedPodHasRowCondition checks the conditions of the row of a pod.
func TestCompletedPodHasRowCondition(t *testing.T) {
	kind := kindOf(t, "pods")
	for phase, want := range map[string]string{
		"Running":   "",
		"Succeeded": "The pod has completed successfully.",
		"Failed":    "The pod failed.",
	} {
		got := kind.Presentation.RowConditions(parse(t, kind, "status: {phase: "+phase+"}"))
		if want == "" {
			if got != nil {
				t.Errorf("%s: got %v, want nil", phase, got)
			}
			continue
		}
		if len(got) != 1 || got[0] != (metav1.TableRowCondition{Type: "Completed", Status: "True", Reason: phase, Message: want}) {
			t.Errorf("%s: got conditions %v, want Completed with %q", phase, got, want)
		}
	}
}
