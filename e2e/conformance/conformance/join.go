package main

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The bootstrap token of the node.
const (
	tokenID     = "abcdef"
	tokenSecret = "0123456789abcdef"
	proxyName   = "kube-proxy"
	// bootstrappers is the group of the token.
	bootstrappers = "system:bootstrappers:conformance"
)

// permit creates the bootstrap token, the service account of kube-proxy and the bindings of roles
// that a node needs, as kubeadm does.
func (n *node) permit() error {
	ctx := n.c.ctx
	_, err := n.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id":                       tokenID,
			"token-secret":                   tokenSecret,
			"usage-bootstrap-authentication": "true",
			"auth-extra-groups":              bootstrappers,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the bootstrap token: %w", err)
	}
	_, err = n.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: proxyName}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the service account of kube-proxy: %w", err)
	}
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	for role, subject := range map[string]rbacv1.Subject{
		"system:node-bootstrapper": group(bootstrappers),
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     group(bootstrappers),
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": group("system:nodes"),
		"system:kubelet-api-admin": {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "kube-apiserver-kubelet-client"},
		"system:node-proxier":      {Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: proxyName},
	} {
		_, err := n.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "conformance:" + role}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("bind the role %s: %w", role, err)
		}
	}
	return nil
}

// proxyKubeconfig writes a kubeconfig with a token of the service account of kube-proxy.
func (n *node) proxyKubeconfig(path string) error {
	lifetime := int64(24 * 60 * 60)
	token, err := n.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(n.c.ctx, proxyName,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime},
		}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of kube-proxy: %w", err)
	}
	return n.c.writeKubeconfig(path, &clientcmdapi.AuthInfo{Token: token.Status.Token})
}

func (c *cluster) writeBootstrapKubeconfig(path string) error {
	return c.writeKubeconfig(path, &clientcmdapi.AuthInfo{Token: tokenID + "." + tokenSecret})
}
