import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.internals.CoordinatorKey;
import org.apache.kafka.clients.admin.internals.DescribeStreamsGroupsHandler;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.message.StreamsGroupDescribeResponseData;
import org.apache.kafka.common.message.StreamsGroupDescribeResponseDataJsonConverter;
import org.apache.kafka.common.requests.StreamsGroupDescribeResponse;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.tools.streams.TopologyDescriptionFormatter;

/** Descriptions as a JSON array -> their texts: what Kafka's own admin client and formatter make of an answer. */
class AsTheToolPrints {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        CoordinatorKey key = CoordinatorKey.byGroupId("g");
        ArrayNode texts = mapper.createArrayNode();
        for (JsonNode description : mapper.readTree(System.in)) {
            JsonNode answer = mapper.readTree("""
                {"throttleTimeMs": 0, "groups": [{"errorCode": 0, "errorMessage": null, "groupId": "g",
                "groupState": "Empty", "assignorName": null, "groupEpoch": 1, "assignmentEpoch": 1, "topology": {"epoch": 1, "subtopologies": []}, "members": [],
                "authorizedOperations": 0, "topologyDescriptionStatus": 3}]}""");
            ((ObjectNode) answer.get("groups").get(0))
                .set("topologyDescription", description);
            short version = StreamsGroupDescribeResponseData.HIGHEST_SUPPORTED_VERSION;
            StreamsGroupDescribeResponseData data =
                StreamsGroupDescribeResponseDataJsonConverter.read(answer, version);
            StreamsGroupDescription group = new DescribeStreamsGroupsHandler(false, true, new LogContext())
                .handleResponse(new Node(0, "", 0), Set.of(key), new StreamsGroupDescribeResponse(data))
                .completedKeys.get(key);
            texts.add(TopologyDescriptionFormatter.format(group.topologyDescription().get()));
        }
        mapper.writeValue(System.out, texts);
    }
}
