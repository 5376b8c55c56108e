package agent

// The agent protocol: JSON over HTTPS with TLS 1.3. Only the join goes without a client certificate.

type joinRequest struct {
	Token        string  `json:"token"`
	CSR          string  `json:"csr"`
	Machine      Machine `json:"machine"`
	Clock        string  `json:"clock"`
	AgentVersion string  `json:"agentVersion"`
}

// Machine is what the agent saw of the machine that it runs on. What cannot be read stays empty.
type Machine struct {
	MachineID string `json:"machineId"`
	Serial    string `json:"serial"`
	Hostname  string `json:"hostname"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int64  `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
}

type joinResponse struct {
	HostID           string `json:"hostId"`
	TenantID         string `json:"tenantId"`
	Certificate      string `json:"certificate"`
	CABundle         string `json:"caBundle"`
	NotAfter         string `json:"notAfter"`
	HeartbeatSeconds int    `json:"heartbeatSeconds"`
}

type heartbeatRequest struct {
	AgentVersion  string `json:"agentVersion"`
	Clock         string `json:"clock"`
	UptimeSeconds int64  `json:"uptimeSeconds"`
}

type heartbeatResponse struct {
	HeartbeatSeconds int  `json:"heartbeatSeconds"`
	Renew            bool `json:"renew"`
}

type renewRequest struct {
	CSR string `json:"csr"`
}

type renewResponse struct {
	Certificate string `json:"certificate"`
	CABundle    string `json:"caBundle"`
	NotAfter    string `json:"notAfter"`
}
