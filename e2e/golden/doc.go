// Package golden replays recorded conversations with kube-apiserver 1.33 against any server and
// reports where the responses differ.
//
// A case is a YAML file of steps in cases/. NAME.want.json beside it holds the normalized responses
// of kube-apiserver: UIDs, resource versions, times, continue tokens, generated names, cluster
// addresses, the case's namespace and saved variables are replaced by placeholders. A step is
// identical, or equivalent if only the wording of messages differs. Where kube-apiserver returns a
// client error with 500 and no reason, any 4xx is equivalent.
//
// kube-apiserver ran without a controller manager and without nodes, with
// --service-cluster-ip-range=10.0.0.0/24 --authorization-mode=Node,RBAC
// --enable-bootstrap-token-auth --allow-privileged=true
// --service-account-issuer=https://kubernetes.default.svc, default feature gates, and the default
// admission plugins with NodeRestriction.
//
// Its callers are TestGolden, which runs every case against a fresh server, and the command in cmd,
// which runs selected cases.
package golden
