package awsec2_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	secret      = "canary-aws-51c2"
	accessKeyID = "AKIAIOSFODNN7EXAMPLE"
	zone        = "us-east-2a"
	subnet      = "subnet-0123456789abcdef0"
	image       = "ami-0123456789abcdef0"
	armImage    = "ami-0fedcba9876543210"
)

type object = map[string]any

// fake is a region of an account at AWS. It holds everything in the form of AWS's command line, as the recordings have it.
type fake struct {
	mu    sync.Mutex
	types []object
	// elsewhere are types that the subnet's zone does not have.
	elsewhere map[string]bool
	perPage   int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list. extra adds fields that nobody knows.
	emptyLastPage, repeatedPage, extra bool
	// making is how many looks at an instance it takes until it runs.
	making int
	// limit is the number of instances that the account may have; 0 is none. soldOut: there is no capacity; soldOutLater: and it is found out later.
	limit                 int
	soldOut, soldOutLater bool
	address               string // where all instances are
	instances             []object
	requests              map[string]url.Values // that made the instances, by client token
	looks                 map[string]int
	nextID                int
}

func newFake() *fake {
	f := &fake{perPage: 1000, address: "203.0.113.7", requests: map[string]url.Values{}, looks: map[string]int{}, elsewhere: map[string]bool{"c3.8xlarge": true}}
	for _, name := range []string{"instance-types", "p3"} {
		text, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			panic(err)
		}
		var recording struct{ InstanceTypes []object }
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&recording); err != nil {
			panic(err)
		}
		f.types = append(f.types, recording.InstanceTypes...)
	}
	for n := range 5 {
		f.create("c4.large", fmt.Sprintf("a-token-of-theirs-%d", n))
	}
	return f
}

// create makes an instance. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(instanceType, token string) object {
	f.nextID++
	i := object{
		"InstanceId": fmt.Sprintf("i-%017x", f.nextID), "InstanceType": instanceType, "ImageId": image, "ClientToken": token, "Architecture": "x86_64",
		"PrivateIpAddress": "172.31.0.5", "PublicIpAddress": f.address, "Placement": object{"AvailabilityZone": zone, "Tenancy": "default"},
		"State": object{"Code": 16, "Name": "running"}, "Tags": []object{{"Key": "Name", "Value": "web"}},
	}
	f.instances = append(f.instances, i)
	return i
}

func terminate(i object, reason string) {
	i["State"], i["StateReason"] = object{"Code": 48, "Name": "terminated"}, object{"Code": reason, "Message": reason + ": why"}
	delete(i, "PublicIpAddress")
	delete(i, "PrivateIpAddress")
}

func stateOf(i object) string { return i["State"].(object)["Name"].(string) }

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, i := range f.instances {
		if i["ClientToken"] == operationID && stateOf(i) != "terminated" {
			n++
		}
	}
	return n
}

// userData is what the operation's instance was made with.
func (f *fake) userData(operationID string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := base64.StdEncoding.DecodeString(f.requests[operationID].Get("UserData"))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// ServeHTTP is the API.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	signed := r.Header.Get("Authorization")
	if !strings.HasPrefix(signed, "AWS4-HMAC-SHA256 Credential="+accessKeyID+"/") || !strings.Contains(signed, "/us-east-2/ec2/aws4_request") {
		refuse(w, http.StatusUnauthorized, "AuthFailure")
		return
	}
	if err := r.ParseForm(); err != nil || r.PostForm.Get("Version") != "2016-11-15" {
		refuse(w, http.StatusBadRequest, "InvalidAction")
		return
	}
	switch action := r.PostForm.Get("Action"); action {
	case "DescribeInstances":
		f.describeInstances(w, r.PostForm)
	case "DescribeInstanceTypes":
		f.describeTypes(w, r.PostForm)
	case "DescribeInstanceTypeOfferings":
		offerings := []object{}
		for _, t := range f.types {
			if name := t["InstanceType"].(string); !f.elsewhere[name] {
				offerings = append(offerings, object{"InstanceType": name, "LocationType": "availability-zone", "Location": r.PostForm.Get("Filter.1.Value.1")})
			}
		}
		f.list(w, r.PostForm, "InstanceTypeOfferings", offerings)
	case "DescribeSubnets":
		if r.PostForm.Get("SubnetId.1") != subnet {
			refuse(w, http.StatusBadRequest, "InvalidSubnetID.NotFound")
			return
		}
		f.list(w, r.PostForm, "Subnets", []object{{"SubnetId": subnet, "AvailabilityZone": zone}})
	case "RunInstances":
		f.run(w, r.PostForm)
	case "TerminateInstances":
		i := f.find(r.PostForm.Get("InstanceId.1"))
		if i == nil {
			refuse(w, http.StatusBadRequest, "InvalidInstanceID.NotFound")
			return
		}
		terminate(i, "Client.UserInitiatedShutdown")
		f.answer(w, "TerminateInstances", object{"Instances": []object{{"InstanceId": i["InstanceId"], "CurrentState": object{"Code": 32, "Name": "shutting-down"}}}})
	default:
		refuse(w, http.StatusBadRequest, "InvalidAction")
	}
}

func (f *fake) find(id string) object {
	for _, i := range f.instances {
		if i["InstanceId"] == id {
			return i
		}
	}
	return nil
}

func (f *fake) describeInstances(w http.ResponseWriter, in url.Values) {
	shown := []object{}
	if id := in.Get("InstanceId.1"); id != "" {
		i := f.find(id)
		if i == nil {
			refuse(w, http.StatusBadRequest, "InvalidInstanceID.NotFound")
			return
		}
		if in.Has("MaxResults") {
			refuse(w, http.StatusBadRequest, "InvalidParameterCombination")
			return
		}
		shown = append(shown, object{"Instances": []object{f.look(i)}})
	} else {
		for _, i := range f.instances {
			if in.Get("Filter.1.Name") != "client-token" || in.Get("Filter.1.Value.1") == i["ClientToken"] {
				shown = append(shown, object{"Instances": []object{f.look(i)}})
			}
		}
	}
	f.list(w, in, "Reservations", shown)
}

func (f *fake) look(i object) object {
	id := i["InstanceId"].(string)
	if f.looks[id]++; stateOf(i) == "pending" && f.looks[id] > f.making {
		if f.soldOutLater {
			terminate(i, "Server.InsufficientInstanceCapacity")
			return i
		}
		i["State"], i["PublicIpAddress"] = object{"Code": 16, "Name": "running"}, f.address
	}
	return i
}

func (f *fake) typeOf(name string) object {
	for _, t := range f.types {
		if t["InstanceType"] == name {
			return t
		}
	}
	return nil
}

func (f *fake) describeTypes(w http.ResponseWriter, in url.Values) {
	name := in.Get("InstanceType.1")
	if name == "" {
		f.list(w, in, "InstanceTypes", f.types)
		return
	}
	t := f.typeOf(name)
	if t == nil {
		refuse(w, http.StatusBadRequest, "InvalidInstanceType")
		return
	}
	f.list(w, in, "InstanceTypes", []object{t})
}

func (f *fake) run(w http.ResponseWriter, in url.Values) {
	token, name := in.Get("ClientToken"), in.Get("InstanceType")
	if before, known := f.requests[token]; known {
		f.runAgain(w, token, before.Encode() == in.Encode())
		return
	}
	t := f.typeOf(name)
	code, status := "", http.StatusBadRequest
	switch {
	case t == nil:
		code = "InvalidParameterValue"
	case f.elsewhere[name]:
		code = "Unsupported"
	case in.Get("NetworkInterface.1.SubnetId") != subnet || in.Get("NetworkInterface.1.SecurityGroupId.1") == "" || in.Get("MinCount") != "1" || in.Get("MaxCount") != "1":
		code = "MissingParameter"
	case in.Get("ImageId") != map[bool]string{false: image, true: armImage}[strings.HasPrefix(name, "a1.")]:
		code = "InvalidAMIID.NotFound"
	case f.limit > 0 && len(f.instances) >= f.limit:
		code = "VcpuLimitExceeded"
	case f.soldOut:
		code, status = "InsufficientInstanceCapacity", http.StatusInternalServerError
	}
	if code != "" {
		refuse(w, status, code)
		return
	}
	i := f.create(name, token)
	f.requests[token] = in
	i["State"] = object{"Code": 0, "Name": "pending"}
	delete(i, "PublicIpAddress")
	f.answer(w, "RunInstances", object{"ReservationId": "r-1", "OwnerId": "123456789012", "Instances": []object{i}})
}

// runAgain answers an order with a client token that there was.
func (f *fake) runAgain(w http.ResponseWriter, token string, same bool) {
	i := f.instances[slices.IndexFunc(f.instances, func(i object) bool { return i["ClientToken"] == token })]
	switch {
	case !same:
		refuse(w, http.StatusBadRequest, "IdempotentParameterMismatch")
	case stateOf(i) == "terminated":
		refuse(w, http.StatusBadRequest, "IdempotentInstanceTerminated")
	default:
		f.answer(w, "RunInstances", object{"ReservationId": "r-1", "OwnerId": "123456789012", "Instances": []object{i}})
	}
}

func (f *fake) list(w http.ResponseWriter, in url.Values, name string, items []object) {
	page, _ := strconv.Atoi(strings.TrimPrefix(in.Get("NextToken"), "page-"))
	per, _ := strconv.Atoi(in.Get("MaxResults"))
	page = max(page, 1)
	if per == 0 {
		per = f.perPage
	}
	per = min(per, f.perPage)
	last := max((len(items)+per-1)/per, 1)
	if f.emptyLastPage {
		last++
	}
	body := object{name: items[min((page-1)*per, len(items)):min(page*per, len(items))]}
	if page < last {
		body["NextToken"] = fmt.Sprintf("page-%d", page+1)
		if f.repeatedPage && page > 1 {
			body["NextToken"] = "page-2"
		}
	}
	f.answer(w, in.Get("Action"), body)
}

func (f *fake) answer(w http.ResponseWriter, action string, body object) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("X-Amzn-Requestid", "59dbff89-35bd-4eac-99ed-be587EXAMPLE")
	var text bytes.Buffer
	text.WriteString(xml.Header)
	f.write(&text, action+"Response", body)
	_, _ = w.Write(text.Bytes())
}

// elements are the names in XML that are not those of the command line with a small first letter.
var elements = map[string]string{
	"InstanceTypes": "instanceTypeSet", "InstanceTypeOfferings": "instanceTypeOfferingSet", "Reservations": "reservationSet", "Instances": "instancesSet",
	"Subnets": "subnetSet", "State": "instanceState", "PublicIpAddress": "ipAddress", "Tags": "tagSet",
}

func (f *fake) write(text *bytes.Buffer, element string, v any) {
	if v == nil {
		return
	}
	text.WriteString("<" + element + ">")
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name, ok := elements[key]
			if !ok {
				name = strings.ToLower(key[:1]) + key[1:]
			}
			f.write(text, name, v[key])
		}
		if f.extra {
			text.WriteString("<frobnication><item>1</item></frobnication>")
		}
	case []object:
		for _, item := range v {
			f.write(text, "item", item)
		}
	case []any:
		for _, item := range v {
			f.write(text, "item", item)
		}
	default:
		_ = xml.EscapeText(text, fmt.Append(nil, v))
	}
	text.WriteString("</" + element + ">\n")
}

func refusal(code string) string {
	message := code + " is what it is."
	if code == "InvalidParameterValue" {
		message = "Invalid value 'x9.large' for InstanceType."
	}
	return xml.Header + "<Response><Errors><Error><Code>" + code + "</Code><Message>" + message + "</Message></Error></Errors><RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(refusal(code)))
}
